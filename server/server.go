// Package server composes a whole Rockpool from its settings: store, cluster, engine, and
// the API and the dashboard over HTTP. It converts the settings into what each part takes,
// opens the cluster, and uses what only some clusters can by interfaces.
package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/rockpool/rockpool/agent/embedded"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/local"
	"github.com/rockpool/rockpool/local/tiers"
	"github.com/rockpool/rockpool/nomad"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/attacks"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/server/peering"
	"github.com/rockpool/rockpool/server/secure"
)

// A cluster is one that a server runs.
type cluster interface {
	runtime.Cluster
	Check(ctx context.Context) error
	Run(ctx context.Context) error
	Close()
}

// What some clusters can beside that.
type (
	lossReporter interface{ Limitations() string }
	tiered       interface {
		Tiers(ctx context.Context) []tiers.Tier
	}
	// A cluster shows figures of its kind (server/metrics).
	countedLocal interface{ Stats() local.Stats }
	countedNomad interface{ Stats() nomad.Stats }
	led          interface {
		Leader() (address, secret string)
		Secret() string
		LockID() string
	}
	starter interface {
		PutFirst(ctx context.Context, environments []runtime.Environment) error
	}
)

// A Server is the whole of Rockpool: store, cluster, engine and the API over HTTP. Open it, then Run it, once each.
type Server struct {
	Engine *engine.Engine // there after Open; answers once it is restored

	config  config.Config
	logger  *zap.Logger
	store   *store.Store
	cluster cluster
	agents  *embedded.Files // that Nomad fetches; nil: nobody does
	listeners
	callers

	// Socket is a Unix socket to serve on, instead of Config.Listen; "": none. Set it
	// before Open.
	Socket string

	// Programs are what local runners are made with; nil: those that were built in. Set it
	// before Open.
	Programs *Programs

	// First returns the environments that a start stores where this machine's
	// cluster has none; nil: none. Set it before Open.
	First func() ([]runtime.Environment, error)
}

// Callers are what the server knows of its callers, there after Open.
type callers struct {
	key    []byte // signs addresses of downloads, and grants
	book   *identity.Book
	quotas *quota.Ledger
	audit  *audit.Log
}

// New returns a server for a configuration that was checked.
func New(config config.Config, logger *zap.Logger) *Server {
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
	if err := s.openListeners(ctx); err != nil {
		return err
	}
	if err := s.openCluster(ctx); err != nil {
		return err
	}
	check := s.checkLocal
	if s.config.Cluster == config.ClusterNomad {
		check = s.checkNomad
	}
	if err := check(ctx); err != nil {
		return err
	}
	s.audit, err = audit.New(audit.Config{
		Store: s.store, Keep: seconds(s.config.KeepAudit), Lines: auditLines(s.config.AuditLog), Stdout: os.Stdout, Failing: s.auditFails, Unstored: s.logUnstored,
	})
	if err != nil {
		return err
	}
	if identity.IsMade(s.config.Token) { // it would be an administrator's, whatever its role is, and couldn't be revoked
		return errors.New("--token-file (or ROCKPOOL_TOKEN_FILE): the file has a token that `rockpool token create` made. Unset the variable for the server if it names your own token; or make a token for the file, for example with `head -c 32 /dev/urandom | base64`")
	}
	s.quotas = quota.New()
	s.book = identity.New(identity.Config{
		Store: s.store, FirstToken: s.config.Token, Open: s.config.Token == "" && s.config.OIDC.Issuer == "", Key: s.key, Quotas: s.quotas, Logger: s.logger.Named("identity"),
		Free: func(ctx context.Context, id runtime.TenantID) error { return s.Engine.FreeTenant(ctx, id) },
	})
	if err := s.book.Load(ctx); err != nil {
		return fmt.Errorf("read the tokens: %w", err)
	}
	if s.book.Open() && s.Socket == "" {
		s.logger.Info("no token is needed: every process that reaches this address may do everything; rockpool token create changes that")
	}
	debug.FreeOSMemory() // starting took copies of the embedded programs: 20 MB that nobody needs any more
	s.Engine = engine.New(s.cluster, s.store, engine.Config{
		Dir: s.config.Data, Logger: s.logger.Named("engine"),
		Alert: pool.AlertRule{Threshold: s.config.AlertThreshold, Timeout: seconds(s.config.AlertTimeout)},
		Keep:  seconds(s.config.KeepExecutions), KeepBytes: s.config.KeepBytes,
		Attacks: s.lastAttacks(), Quotas: s.quotas, Weight: s.weight, Led: s.readBook, Audit: s.audit.Problem,
	})
	return nil
}

// readBook reads the tokens and tenants again that other servers may have changed.
func (s *Server) readBook(ctx context.Context) error {
	if !s.store.Shared() {
		return nil
	}
	if err := s.book.Load(ctx); err != nil {
		return fmt.Errorf("read the tokens: %w", err)
	}
	return nil
}

// runBook keeps the tokens and tenants: as the server that leads changes them, until this one does.
func (s *Server) runBook(ctx context.Context) error {
	if s.store.Shared() {
		if err := s.book.Follow(ctx, s.Engine.Restored()); err != nil {
			return err
		}
	}
	return s.book.Run(ctx)
}

// weight returns the turns of a tenant's waiting claims.
func (s *Server) weight(id runtime.TenantID) int {
	t, _ := s.book.Tenant(id)
	return max(t.Weight, runtime.DefaultWeight)
}

// Limitations says what runners of this machine lack, since the server isn't root; "": nothing.
func (s *Server) Limitations() string {
	if here, ok := s.cluster.(lossReporter); ok {
		return here.Limitations()
	}
	return ""
}

// Tiers tries the isolation tiers and runtimes that the settings name for runners of this
// machine. The result is empty on Nomad.
func (s *Server) Tiers(ctx context.Context) []tiers.Tier {
	if here, ok := s.cluster.(tiered); ok {
		return here.Tiers(ctx)
	}
	return nil
}

// Config returns the server's settings.
func (s *Server) Config() config.Config { return s.config }

// lastAttacks is of [engine.Config]: attacks are on runners of this machine.
func (s *Server) lastAttacks() func() (*attacks.Record, error) {
	if s.config.Cluster == config.ClusterNomad {
		return nil
	}
	return func() (*attacks.Record, error) { return attacks.Last(s.config.Data) }
}

// openCluster opens the data directory and takes over what is left there.
func (s *Server) openCluster(ctx context.Context) (err error) {
	if err := os.MkdirAll(s.config.Data, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	if err := s.openStore(ctx); err != nil {
		return err
	}
	if s.config.Cluster == config.ClusterNomad {
		return s.openNomad(ctx)
	}
	return s.openLocal(ctx)
}

// openStore opens what is kept, and the key that signs addresses of downloads.
func (s *Server) openStore(ctx context.Context) (err error) {
	if s.config.Database == "" {
		if s.store, err = store.Open(ctx, filepath.Join(s.config.Data, "rockpool.db")); err == nil {
			s.key, err = signingKey(s.config.Data)
		}
		return err
	}
	if s.store, err = store.OpenShared(ctx, s.config.Database); err != nil {
		return fmt.Errorf("%w; another database is named by --database", err)
	}
	s.key, err = s.store.Secret(ctx, "signing key", newKey())
	return err
}

// Discard removes the runners that another server left in the data directory, and returns
// nil if nothing of them is left. Call it instead of Open.
func (s *Server) Discard(ctx context.Context) error {
	err := s.openCluster(context.WithoutCancel(ctx))
	if err == nil {
		ended, end := context.WithCancelCause(context.WithoutCancel(ctx))
		end(ErrStopping)
		err = unlessStopping(s.cluster.Run(ended)) // its end is what removes them
	}
	return errors.Join(err, s.Close())
}

// Client returns a client of this server.
func (s *Server) Client() *client.Client {
	if s.Socket != "" {
		return client.NewSocket(s.Socket).WithToken(s.config.Token)
	}
	c := client.New(s.URL()).WithToken(s.config.Token)
	if s.secure != nil {
		c = c.WithTLS(secure.Pin(s.config.TLS.Cert))
	}
	return c
}

// URL is where the server is reached: "http://127.0.0.1:8080".
func (s *Server) URL() string { return s.config.TLS.Scheme() + "://" + s.listener.Addr().String() }

// lastLinesWithin is how long a server that stops waits for the last lines of the access log.
const lastLinesWithin = time.Second

// ErrStopping is why what runs is to end: somebody asked for it.
var ErrStopping error = runtime.Errorf(runtime.CodeClusterUnavailable, "the server is stopping")

// Run serves until ctx ends, or until a part fails. Then it ends, in this
// order and within about 5 s: requests, the engine, the runners (or just their
// watching, see Config.OnStop), the store. It returns nil if ctx ended.
func (s *Server) Run(ctx context.Context) error {
	known, err := s.knownPeers()
	if err != nil {
		return errors.Join(err, s.Close())
	}
	group, ctx := errgroup.WithContext(ctx)
	// Each part has its own context, for what stands on a part ends before it.
	parts := context.WithoutCancel(ctx)
	streams, endStreams := context.WithCancelCause(parts)
	engineCtx, endEngine := context.WithCancelCause(parts)
	clusterCtx, endCluster := context.WithCancelCause(parts)
	served, engineDone, clusterDone := make(chan struct{}), make(chan struct{}), make(chan struct{})

	requests := newRequests()
	httpServer := s.newHTTP(streams, known, requests)
	front := s.listener
	var serving sync.WaitGroup
	serve := func(of net.Listener) {
		listener := known.Listen(s.encrypt(of))
		serving.Add(1)
		group.Go(func() error {
			defer serving.Done()
			defer listener.Wait()
			if err := httpServer.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
	}
	if here, ok := s.cluster.(led); ok && s.peers != nil {
		front = peering.Pass(front, passedAtMost(), func() peering.Leader {
			address, secret := here.Leader()
			return peering.Leader{Address: address, Secret: secret}
		})
		serve(peering.Take(s.peers, here.Secret(), here.LockID))
	}
	serve(front)
	logCtx, endLog := context.WithCancel(parts)
	logged := make(chan struct{})
	go func() { // not in the group: a stream that nobody reads must not keep a server from stopping
		defer close(logged)
		if s.access != nil {
			s.access.Run(logCtx)
		}
	}()
	go func() { // ends with the listeners
		serving.Wait()
		close(served)
	}()
	group.Go(func() error { return unlessStopping(s.runBook(engineCtx)) })
	group.Go(func() error { return unlessStopping(s.runAudit(engineCtx)) })
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
		endStreams(ErrStopping)
		drain(httpServer)
		<-served
		requests.wait()
		endLog()
		select {
		case <-logged:
		case <-time.After(lastLinesWithin):
		}
		endEngine(ErrStopping)
		<-engineDone
		endCluster(ErrStopping)
		<-clusterDone
		return nil
	})
	return errors.Join(group.Wait(), s.Close())
}

// auditFails logs that the audit log can't be stored, and that it can again.
func (s *Server) auditFails(err error) {
	if err != nil {
		s.logger.Error("the audit log can't be written; it is tried again", zap.Error(err))
		return
	}
	s.logger.Info("the audit log is written again")
}

// logUnstored logs entries of the audit log that nothing will store any more.
func (s *Server) logUnstored(entries []json.RawMessage) {
	s.logger.Error("entries of the audit log can't be stored; they follow", zap.Int("entries", len(entries)))
	for _, e := range entries {
		s.logger.Error("an entry of the audit log that isn't stored", zap.Any("entry", e))
	}
}

// runAudit stores the audit log, once this server may write. What comes before that waits.
func (s *Server) runAudit(ctx context.Context) error {
	select {
	case <-s.Engine.Restored():
	case <-ctx.Done():
	}
	return s.audit.Run(ctx)
}

// passedAtMost returns how many connections a server passes on at once. Each takes two descriptors, of which half are
// left for all else.
func passedAtMost() int { return max(int(min(fileLimit()/4, 8192)), 1) }

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
	if errors.Is(err, ErrStopping) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Close gives back what Open took; Run does so itself.
func (s *Server) Close() error {
	s.listeners.close()
	if s.store == nil {
		return nil
	}
	err := s.store.Close()
	s.store = nil
	return err
}
