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
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/rockpool/rockpool/agent/embedded"
	"github.com/rockpool/rockpool/graph"
	"github.com/rockpool/rockpool/local"
	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/store"
)

// A Server is the whole of Rockpool on one machine: store, cluster, engine and
// the API over HTTP. Open it, then Run it, once each.
type Server struct {
	Engine *engine.Engine // there after Open; answers once it is restored

	config   Config
	logger   *zap.Logger
	store    *store.Store
	cluster  *local.Cluster
	listener net.Listener
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
	agent, err := embedded.Binary(goruntime.GOARCH)
	if err != nil {
		return err
	}
	helper, err := sandbox.Binary()
	if err != nil {
		return err
	}
	if s.listener, err = listen(ctx, s.config.Listen); err != nil {
		return err
	}
	if err := os.MkdirAll(s.config.Data, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	if s.store, err = store.Open(ctx, filepath.Join(s.config.Data, "rockpool.db")); err != nil {
		return err
	}
	s.cluster, err = local.New(local.Config{
		Dir: filepath.Join(s.config.Data, "local"), Store: s.store, Logger: s.logger.Named("local"),
		Agent: agent, Helper: helper, CgroupParent: s.config.CgroupParent, Parallel: s.config.Parallel,
	})
	if err != nil {
		return err
	}
	if err := s.cluster.Check(ctx); err != nil {
		return err
	}
	debug.FreeOSMemory() // starting took copies of the embedded programs: 20 MB that nobody needs any more
	s.Engine = engine.New(s.cluster, s.store, engine.Config{Dir: s.config.Data, Logger: s.logger.Named("engine")})
	return nil
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w; another address is named by --listen", err)
	}
	return patientListener{listener, writePatience}, nil
}

// URL is where the server is reached: "http://127.0.0.1:8080".
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() }

// errStopping is why what runs is to end: somebody asked for it.
var errStopping error = runtime.Errorf(runtime.CodeClusterUnavailable, "the server is stopping")

// Run serves until ctx ends, or until a part fails. Then it ends, in this
// order and within about 5 s: requests, the engine, the runners, the store. It
// returns nil if ctx ended.
func (s *Server) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	// Each part has its own context, for what stands on a part ends before it.
	parts := context.WithoutCancel(ctx)
	streams, endStreams := context.WithCancelCause(parts)
	engineCtx, endEngine := context.WithCancelCause(parts)
	clusterCtx, endCluster := context.WithCancelCause(parts)
	served, engineDone, clusterDone := make(chan struct{}), make(chan struct{}), make(chan struct{})

	httpServer := &http.Server{
		Handler:           graph.Handler(s.Engine, s.config.graphOptions(s.logger.Named("graph"))),
		BaseContext:       func(net.Listener) context.Context { return streams },
		ConnContext:       graph.ConnContext,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          zap.NewStdLog(s.logger.Named("http")),
	}
	group.Go(func() error {
		defer close(served)
		select {
		case <-s.Engine.Restored():
		case <-ctx.Done():
			return s.listener.Close()
		}
		if err := httpServer.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
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
	if s.store == nil {
		return nil
	}
	err := s.store.Close()
	s.store = nil
	return err
}
