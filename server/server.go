// Package server assembles a Rockpool server from its settings: store, cluster, engine, and the API
// and the dashboard over HTTP.
package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/rockpool/rockpool/agent/embedded"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/graph/download"
	"github.com/rockpool/rockpool/local"
	"github.com/rockpool/rockpool/local/host"
	"github.com/rockpool/rockpool/nomad"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/health"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/runtime/timing"
	"github.com/rockpool/rockpool/server/connections"
)

// A cluster is a runtime.Cluster that a server runs.
type cluster interface {
	runtime.Cluster
	Check(ctx context.Context) error
	Run(ctx context.Context) error
	Close()
}

// A Server is a whole Rockpool server: store, cluster, engine and the API over HTTP. Call Open,
// then Run, once each.
type Server struct {
	Engine *engine.Engine // set by Open; responds after it is restored

	config  config.Config
	logger  *zap.Logger
	store   *store.Store
	cluster cluster
	local   *local.Cluster  // the cluster, or nil on Nomad
	nomad   *nomad.Cluster  // the cluster, or nil without Nomad
	agents  *embedded.Files // agent files that Nomad fetches; nil without Nomad
	listeners
	callers

	// Socket is a Unix socket to serve on, instead of the setting listen, or "". Set it before Open.
	Socket string

	// Programs has the programs for local runners; nil means the embedded ones. Set it before Open.
	Programs *Programs

	// First returns the environments that Open stores if this machine's cluster has none yet; nil:
	// none. Set it before Open.
	First func() ([]runtime.Environment, error)
}

// callers has the server's data about its callers. Open sets it.
type callers struct {
	key      []byte // signs download URLs and grants
	registry *identity.Registry
	quotas   *quota.Ledger
	memory   *quota.Memory // for what is kept for them
	audit    *audit.Log
}

// New returns a server for a checked configuration.
func New(config config.Config, logger *zap.Logger) *Server {
	return &Server{config: config, logger: logger}
}

// Open opens the data directory, checks the cluster, and listens on the server's addresses. An
// error says what is missing and what to do; nothing stays open then.
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
	if identity.IsMade(s.config.Token) { // it would have the role ADMIN, whatever its own role is, and couldn't be revoked
		return errors.New("--token-file (or ROCKPOOL_TOKEN_FILE): the file contains a token of `rockpool token create`, which a server can't use as its own. If ROCKPOOL_TOKEN_FILE is set for your own token, unset it for the server; else create a token for the file, for example with `head -c 32 /dev/urandom | base64`")
	}
	s.quotas = quota.New()
	memory, _, _ := serverMemory() // limitMemory has logged it
	s.memory = quota.NewMemory(keptMemory(memory))
	s.registry = identity.New(identity.Config{
		Store: s.store, FirstToken: s.config.Token, Open: s.config.Token == "" && s.config.OIDC.Issuer == "", Key: s.key, Quotas: s.quotas, Logger: s.logger.Named("identity"),
		Free: func(ctx context.Context, id runtime.TenantID) error { return s.Engine.FreeTenant(ctx, id) },
	})
	if err := s.registry.Load(ctx); err != nil {
		return fmt.Errorf("read the tokens: %w", err)
	}
	if s.registry.Open() && s.Socket == "" {
		s.logger.Info("no token is required: every process that reaches this address can do everything; rockpool token create changes that")
	}
	debug.FreeOSMemory() // starting copied the embedded programs: 20 MB that are no longer needed
	// The engine needs the registry and the quotas.
	s.Engine = engine.New(s.cluster, s.store, engine.Config{
		Dir: s.config.Data, Logger: s.logger.Named("engine"), Boot: timing.ReadBoot(),
		Alert: pool.AlertRule{Threshold: s.config.AlertThreshold, Timeout: seconds(s.config.AlertTimeout)},
		Keep:  seconds(s.config.KeepExecutions), KeepBytes: s.config.KeepBytes,
		Memory: s.memory, Attacks: s.lastAttacks(), Quotas: s.quotas, Weight: s.weight, OnLeader: s.readRegistry, Callers: s.registry, Audit: s.audit,
	})
	return nil
}

// readRegistry reads the tokens and tenants again, because other servers may have changed them.
func (s *Server) readRegistry(ctx context.Context) error {
	if !s.store.Shared() {
		return nil
	}
	if err := s.registry.Load(ctx); err != nil {
		return fmt.Errorf("read the tokens: %w", err)
	}
	return nil
}

// runRegistry runs the registry of tokens and tenants. While another server leads, it follows that server's changes.
func (s *Server) runRegistry(ctx context.Context) error {
	if s.store.Shared() {
		if err := s.registry.Follow(ctx, s.Engine.Restored()); err != nil {
			return err
		}
	}
	return s.registry.Run(ctx)
}

// weight returns the weight of a tenant's waiting claims.
func (s *Server) weight(id runtime.TenantID) int {
	t, _ := s.registry.Tenant(id)
	return max(t.Weight, runtime.DefaultWeight)
}

// Limitations describes what runners on this machine lack because the server doesn't run as root, or was
// started with lower limits: each in one line.
func (s *Server) Limitations() []string {
	if s.local == nil {
		return nil
	}
	return s.local.Limitations()
}

// MakeCaches is that of local.Cluster. On Nomad it does nothing.
func (s *Server) MakeCaches(ctx context.Context, begin func(language string)) error {
	if s.local == nil {
		return nil
	}
	return s.local.MakeCaches(ctx, begin)
}

// Tiers tests the isolation tiers and runtimes of the settings for runners on this machine. On
// Nomad it returns none.
func (s *Server) Tiers(ctx context.Context) []host.Tier {
	if s.local == nil {
		return nil
	}
	return s.local.Tiers(ctx)
}

// Config returns the server's settings.
func (s *Server) Config() config.Config { return s.config }

// lastAttacks returns the function for engine.Config that reads the last report of attacks; nil on Nomad.
func (s *Server) lastAttacks() func() (*health.AttackRun, error) {
	if s.config.Cluster == config.ClusterNomad {
		return nil
	}
	return func() (*health.AttackRun, error) { return health.LastAttackRun(s.config.Data) }
}

// openCluster opens the data directory and the cluster.
func (s *Server) openCluster(ctx context.Context) (err error) {
	if err := os.MkdirAll(s.config.Data, 0o700); err != nil {
		return fmt.Errorf("create the data directory: %w", err)
	}
	if err := s.openStore(ctx); err != nil {
		return err
	}
	if s.config.Cluster == config.ClusterNomad {
		return s.openNomad(ctx)
	}
	return s.openLocal(ctx)
}

// openStore opens the store and loads the signing key.
func (s *Server) openStore(ctx context.Context) (err error) {
	if s.config.Database == "" {
		if s.store, err = store.Open(ctx, filepath.Join(s.config.Data, "rockpool.db")); err == nil {
			s.key, err = signingKey(s.config.Data)
		}
		return err
	}
	if s.store, err = store.OpenShared(ctx, s.config.Database); err != nil {
		return fmt.Errorf("%w; check the setting --database", err)
	}
	s.key, err = s.store.Secret(ctx, "signing key", newKey())
	return err
}

// Discard removes the runners that another server left in the data directory. It returns nil if
// nothing of them remains. Call it instead of Open.
func (s *Server) Discard(ctx context.Context) error {
	err := s.openCluster(context.WithoutCancel(ctx))
	if err == nil {
		ended, end := context.WithCancelCause(context.WithoutCancel(ctx))
		end(ErrStopping)
		err = unlessStopping(s.cluster.Run(ended)) // the cluster removes them when it ends
	}
	return errors.Join(err, s.Close())
}

// Client returns a client of this server with the token of the settings. Call it after Open.
func (s *Server) Client() *client.Client {
	if s.Socket != "" {
		return client.NewSocket(s.Socket).WithToken(s.config.Token)
	}
	c := client.New(s.URL()).WithToken(s.config.Token)
	if s.secure != nil {
		c = c.WithTLS(connections.Pin(s.config.TLS.Cert))
	}
	return c
}

// URL returns the server's address, for example "http://127.0.0.1:8080". Call it after Open.
func (s *Server) URL() string { return s.config.TLS.Scheme() + "://" + s.listener.Addr().String() }

// lastLinesWithin is how long a stopping server waits for the last lines of the access log.
const lastLinesWithin = time.Second

// ErrStopping is the cause with which a stopping server cancels its work.
var ErrStopping error = runtime.Errorf(runtime.CodeClusterUnavailable, "the server is stopping")

// Run serves until ctx ends or a part fails. Then it stops, within about 5 s and in this order:
// requests, the engine, the runners (or only their supervision, see Config.OnStop), the store. It
// returns nil if ctx ended.
func (s *Server) Run(ctx context.Context) error {
	known, err := s.knownPeers()
	if err != nil {
		return errors.Join(err, s.Close())
	}
	group, ctx := errgroup.WithContext(ctx)
	// Each part has its own context, because parts that depend on another one must end first.
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
	// Any of the servers can lead, so each one forwards connections and receives forwarded ones.
	if s.nomad != nil && s.peers != nil {
		front = connections.Forward(front, maxForwarded(), func() connections.Leader {
			address, secret := s.nomad.Leader()
			return connections.Leader{Address: address, Secret: secret}
		})
		serve(connections.Receive(s.peers, s.nomad.Secret(), s.nomad.LockID))
	}
	serve(front)
	logCtx, endLog := context.WithCancel(parts)
	logged := make(chan struct{})
	go func() { // not in the group: an unread stdout must not keep the server from stopping
		defer close(logged)
		if s.access != nil {
			s.access.Run(logCtx)
		}
	}()
	go func() { // ends with the listeners
		serving.Wait()
		close(served)
	}()
	group.Go(func() error { return unlessStopping(s.runRegistry(engineCtx)) })
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
		// Requests end first, because they use the engine. The access log then has their lines. The
		// engine ends before the cluster, which it uses.
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

// auditFails logs that the audit log can't be stored, or (nil) that it can again.
func (s *Server) auditFails(err error) {
	if err != nil {
		s.logger.Error("the audit log can't be stored; retrying", zap.Error(err))
		return
	}
	s.logger.Info("the audit log is stored again")
}

// logUnstored logs audit log entries that can no longer be stored.
func (s *Server) logUnstored(entries []json.RawMessage) {
	s.logger.Error("audit log entries can't be stored; the next lines have them", zap.Int("entries", len(entries)))
	for _, e := range entries {
		s.logger.Error("audit log entry that isn't stored", zap.Any("entry", e))
	}
}

// runAudit stores the audit log when this server may write. Earlier entries wait.
func (s *Server) runAudit(ctx context.Context) error {
	select {
	case <-s.Engine.Restored():
	case <-ctx.Done():
	}
	return s.audit.Run(ctx)
}

// maxForwarded returns the maximum number of connections that a server forwards concurrently. Each
// takes two descriptors; half of all descriptors stay free for other uses.
func maxForwarded() int { return max(int(min(fileLimit()/4, 8192)), 1) }

// drain waits up to a second for current requests to end, and then aborts them.
func drain(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close()
	}
}

// unlessStopping returns nil for an error that only says that the server is stopping.
func unlessStopping(err error) error {
	if errors.Is(err, ErrStopping) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Close closes everything that Open opened. Run calls it itself.
func (s *Server) Close() error {
	s.listeners.close()
	if s.store == nil {
		return nil
	}
	err := s.store.Close()
	s.store = nil
	return err
}

// signingKey returns the key that signs download URLs. The key is in the data directory, readable
// only by its owner; the first start creates it. The caller must hold the directory's lock.
func signingKey(dir string) ([]byte, error) {
	path := filepath.Join(dir, "signing.key")
	key, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return makeKey(path)
	case err != nil:
		return nil, fmt.Errorf("read the signing key: %w", err)
	case len(key) != download.KeySize:
		return nil, fmt.Errorf("%s has %d bytes, but must have %d: remove it, and the server creates a new one; existing download URLs then stop working", path, len(key), download.KeySize)
	}
	if err := os.Chmod(path, 0o600); err != nil { // copying the directory may have made it readable for others
		return nil, fmt.Errorf("make the signing key private: %w", err)
	}
	return key, nil
}

// newKey returns a random key. It doesn't store it.
func newKey() []byte {
	key := make([]byte, download.KeySize)
	_, _ = rand.Read(key) // never fails
	return key
}

// makeKey writes a new key atomically: after a power failure there is the whole key or none.
func makeKey(path string) ([]byte, error) {
	key := newKey()
	if err := renameio.WriteFile(path, key, 0o600, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(0o600)); err != nil {
		return nil, fmt.Errorf("create the signing key: %w", err)
	}
	return key, nil
}
