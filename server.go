package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	goruntime "runtime"
	"runtime/debug"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/rockpool/rockpool/agent/embedded"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/graph"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/local"
	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/scheduler"
	"github.com/rockpool/rockpool/metrics"
	"github.com/rockpool/rockpool/nomad"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/web"
)

// A cluster is one that main runs.
type cluster interface {
	runtime.Cluster
	Run(ctx context.Context) error
	Close()
}

// A Server is the whole of Rockpool: store, cluster, engine and the API over HTTP. Open it, then Run it, once each.
type Server struct {
	Engine *engine.Engine // there after Open; answers once it is restored

	config   Config
	logger   *zap.Logger
	store    *store.Store
	cluster  cluster
	agents   *embedded.Files // that Nomad fetches; nil: nobody does
	listener net.Listener
	key      []byte       // signs addresses of downloads
	debug    net.Listener // of the profiles; nil: they aren't served
	socket   string       // a Unix socket to serve on, instead of Config.Listen; "": none
	programs *programs    // that local runners are made with; nil: those that were built in

	// first returns the environments that a start stores where this machine's
	// cluster has none; nil: none.
	first func() ([]runtime.Environment, error)
}

// programs are what local runners are made with.
type programs struct{ agent, helper []byte }

func builtIn() (*programs, error) {
	agent, err := embedded.Binary(goruntime.GOARCH)
	if err != nil {
		return nil, err
	}
	helper, err := sandbox.Binary()
	return &programs{agent, helper}, err
}

// NewServer returns a server for a configuration that was checked.
func NewServer(config Config, logger *zap.Logger) *Server {
	return &Server{config: config, logger: logger}
}

// Open takes what the server needs: its data directory, the machine's
// isolation, and its address. The error says what is missing and what to do;
// nothing stays open then.
func (s *Server) Open(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			if s.cluster != nil {
				s.cluster.Close()
			}
			err = errors.Join(err, s.Close())
		}
	}()
	if s.listener, err = s.listen(ctx); err != nil {
		return err
	}
	if s.config.DebugAddress != "" {
		if s.debug, err = (&net.ListenConfig{}).Listen(ctx, "tcp", s.config.DebugAddress); err != nil {
			return fmt.Errorf("%w; another address is named by --debug-address", err)
		}
	}
	if err := s.openCluster(ctx); err != nil {
		return err
	}
	if here, ok := s.cluster.(*local.Cluster); ok {
		switch err := here.Check(ctx); {
		case runtime.CodeOf(err) == runtime.CodeStorageFull: // what runs goes on all the same
			s.logger.Warn("the disk is full", zap.Error(err))
		case err != nil:
			return err
		}
		// Before the API answers: a client that waited for the address may use them.
		if err := s.putFirst(ctx, here); err != nil {
			return fmt.Errorf("make the first environments: %w", err)
		}
	}
	debug.FreeOSMemory() // starting took copies of the embedded programs: 20 MB that nobody needs any more
	s.Engine = engine.New(s.cluster, s.store, engine.Config{
		Dir: s.config.Data, Logger: s.logger.Named("engine"),
		Alert: pool.AlertRule{Threshold: s.config.AlertThreshold, Timeout: time.Duration(s.config.AlertTimeout) * time.Second},
		Keep:  time.Duration(s.config.KeepExecutions) * time.Second, KeepBytes: s.config.KeepBytes,
		Attacks: s.lastAttacks(),
	})
	return nil
}

func (s *Server) putFirst(ctx context.Context, here *local.Cluster) error {
	if s.first == nil {
		return nil
	}
	environments, err := s.first()
	if err != nil {
		return err
	}
	return here.PutFirst(ctx, environments)
}

// lost says what runners don't have here, since this isn't root; "": nothing.
func (s *Server) lost() string {
	if here, ok := s.cluster.(*local.Cluster); ok {
		return here.Lost()
	}
	return ""
}

// lastAttacks is of [engine.Config]: attacks are on runners of this machine.
func (s *Server) lastAttacks() func() (*engine.Attacks, error) {
	if s.config.Cluster == clusterNomad {
		return nil
	}
	return func() (*engine.Attacks, error) { return lastAttacks(s.config.Data) }
}

// openCluster opens the data directory and takes over what is left there.
func (s *Server) openCluster(ctx context.Context) (err error) {
	if err := os.MkdirAll(s.config.Data, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	if s.store, err = store.Open(ctx, filepath.Join(s.config.Data, "rockpool.db")); err != nil {
		return err
	}
	if s.key, err = signingKey(s.config.Data); err != nil {
		return err
	}
	if s.config.Cluster == clusterNomad {
		return s.openNomad(ctx)
	}
	return s.openLocal(ctx)
}

func (s *Server) openLocal(ctx context.Context) error {
	with := s.programs
	if with == nil {
		var err error
		if with, err = builtIn(); err != nil {
			return err
		}
	}
	var network *local.Network
	if s.config.Network {
		var err error
		if network, err = s.config.Networks.local(); err != nil {
			return err
		}
	}
	opened, err := local.New(ctx, local.Config{
		Dir: filepath.Join(s.config.Data, "local"), Store: s.store, Logger: s.logger.Named("local"),
		Agent: with.agent, Helper: with.helper, ImageWorker: imageWorker, HelperSocket: s.config.SandboxHelper, MissingLimits: s.config.AcceptMissing, CgroupParent: s.config.CgroupParent, Parallel: s.config.Parallel,
		Overcommit: scheduler.Overcommit{CPU: s.config.CPUOvercommit, Memory: s.config.MemoryOvercommit},
		Collect: scheduler.Collect{
			Evaluations: time.Duration(s.config.KeepEvaluations) * time.Second, Runners: time.Duration(s.config.KeepAllocations) * time.Second,
		},
		Keep:   s.config.OnStop == stopKeeps,
		Images: s.config.Images.cache(), Runtimes: s.config.Runtimes.parsed, DiskRead: s.config.Disk.bytes(), Network: network,
	})
	if err != nil {
		return err // a nil *local.Cluster would be no nil cluster
	}
	s.cluster = opened
	return nil
}

// openNomad doesn't wait for Nomad: Run does.
func (s *Server) openNomad(ctx context.Context) (err error) {
	if s.agents, err = embedded.NewFiles(); err != nil {
		return err
	}
	dir := filepath.Join(s.config.Data, "nomad")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	opened, err := nomad.New(ctx, s.config.nomadConfig(dir, s.agents.ArchiveSum(s.config.Nomad.Arch), s.logger.Named("nomad")))
	if err != nil {
		return nomadSetting(err)
	}
	s.cluster = opened
	return s.lookAtNomad(ctx, opened)
}

// lookAtNomad refuses to start with a template that Nomad doesn't take. What else
// is missing there may come.
func (s *Server) lookAtNomad(ctx context.Context, c *nomad.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, nomadPatience)
	defer cancel()
	err := c.Check(ctx)
	if runtime.CodeOf(err) == runtime.CodeInvalidInput {
		return nomadSetting(err)
	}
	if err != nil {
		s.logger.Warn("Nomad isn't as it should be yet; rockpool doctor says more", zap.Error(err))
	}
	return nil
}

// nomadPatience is how long a start waits for Nomad; then the server begins to
// serve what it can without it.
const nomadPatience = 3 * time.Second

// Discard is for who doesn't Open: it removes the runners that another server
// left in the data directory, and returns nil if nothing of them is left.
func (s *Server) Discard(ctx context.Context) error {
	err := s.openCluster(context.WithoutCancel(ctx))
	if err == nil {
		ended, end := context.WithCancelCause(context.WithoutCancel(ctx))
		end(errStopping)
		err = unlessStopping(s.cluster.Run(ended)) // its end is what removes them
	}
	return errors.Join(err, s.Close())
}

// listenPatience is how long an address that is taken is waited for: a server
// that was just killed may have been starting a program, whose process has its
// socket until it is executed.
const listenPatience = time.Second

func (s *Server) listen(ctx context.Context) (net.Listener, error) {
	network, address, advice := "tcp", s.config.Listen, "; another address is named by --listen"
	if s.socket != "" {
		network, address, advice = "unix", s.socket, ""
	}
	for end := time.Now().Add(listenPatience); ; {
		listener, err := (&net.ListenConfig{}).Listen(ctx, network, address)
		if err == nil {
			return patientListener{listener, writePatience}, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			return nil, fmt.Errorf("%w%s", err, advice)
		}
		select {
		case <-time.After(10 * time.Millisecond): // it can't be waited for otherwise
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Client returns a client of this server.
func (s *Server) Client() *client.Client {
	if s.socket != "" {
		return client.NewSocket(s.socket).WithToken(s.config.token)
	}
	return client.New(s.URL()).WithToken(s.config.token)
}

// URL is where the server is reached: "http://127.0.0.1:8080".
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() }

// errStopping is why what runs is to end: somebody asked for it.
var errStopping error = runtime.Errorf(runtime.CodeClusterUnavailable, "the server is stopping")

// Run serves until ctx ends, or until a part fails. Then it ends, in this
// order and within about 5 s: requests, the engine, the runners (or just their
// watching, see Config.OnStop), the store. It returns nil if ctx ended.
func (s *Server) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	// Each part has its own context, for what stands on a part ends before it.
	parts := context.WithoutCancel(ctx)
	streams, endStreams := context.WithCancelCause(parts)
	engineCtx, endEngine := context.WithCancelCause(parts)
	clusterCtx, endCluster := context.WithCancelCause(parts)
	served, engineDone, clusterDone := make(chan struct{}), make(chan struct{}), make(chan struct{})

	memory, _, _ := serverMemory() // limitMemory has logged what it is
	peers := transport.NewPeers(s.config.Bounds.bounds(s.config.MaxBody, memory, fileLimit()))
	options := s.config.graphOptions(peers, s.logger.Named("graph"))
	options.SigningKey, options.Started = s.key, s.Engine.Restored()
	if s.agents != nil {
		options.Agents = s.agents
	}
	counted := metrics.Sources{Version: version(), Engine: s.Engine.Stats, Peers: peers.Usage, Logger: s.logger.Named("metrics")}
	if here, ok := s.cluster.(*local.Cluster); ok {
		counted.Local = here.Stats
	}
	options.Metrics = metrics.Handler(counted)
	requests := newRequests()
	httpServer := &http.Server{
		Handler:           graph.BoundUnread(requests.count(graph.RefuseFraming(web.Handler(graph.Handler(s.Engine, options))))),
		BaseContext:       func(net.Listener) context.Context { return streams },
		ConnContext:       graph.ConnContext,
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    maxHead,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          zap.NewStdLog(s.logger.Named("http")),
	}
	listener := peers.Listen(s.listener)
	group.Go(func() error {
		defer close(served)
		defer listener.Wait()
		if s.agents == nil { // else Nomad fetches them, and health says what is waited for
			select {
			case <-s.Engine.Restored():
			case <-ctx.Done():
				return s.listener.Close()
			}
		}
		if err := httpServer.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	if s.debug != nil {
		group.Go(func() error { return serveProfiles(ctx, s.debug) })
	}
	group.Go(func() error {
		defer close(engineDone)
		return unlessStopping(s.Engine.Run(engineCtx))
	})
	group.Go(func() error {
		defer close(clusterDone)
		return unlessStopping(s.cluster.Run(clusterCtx))
	})
	group.Go(func() error {
		<-ctx.Done()
		endStreams(errStopping)
		drain(httpServer)
		<-served
		requests.wait()
		endEngine(errStopping)
		<-engineDone
		endCluster(errStopping)
		<-clusterDone
		return nil
	})
	return errors.Join(group.Wait(), s.Close())
}

// drain lets requests end that are being answered, for a second, and then cuts
// them off.
func drain(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close()
	}
}

func unlessStopping(err error) error {
	if errors.Is(err, errStopping) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Close gives back what Open took; Run does so itself.
func (s *Server) Close() error {
	if s.listener != nil {
		_ = s.listener.Close() // serving has closed it, or never began
	}
	if s.debug != nil {
		_ = s.debug.Close() // likewise
	}
	if s.store == nil {
		return nil
	}
	err := s.store.Close()
	s.store = nil
	return err
}
