package graph

import (
	"net/http"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/compat"
	"github.com/rockpool/rockpool/graph/download"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/runtime/language"
	"github.com/rockpool/rockpool/runtime/versions"
	"github.com/rockpool/rockpool/server/routes"

	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/test/clustertest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop")) // connections that the tests' client keeps
}

// A bed is the API over an engine with a fake cluster and a real store.
type bed struct {
	t        testing.TB
	url      string
	engine   *engine.Engine
	registry *identity.Registry
}

func newBed(t testing.TB) bed {
	t.Helper()
	fake := clustertest.NewFake()
	return newBedOver(t, fake, fake)
}

// newBedOver returns a bed over a cluster that wraps a fake one.
func newBedOver(t testing.TB, cluster runtime.Cluster, fake *clustertest.Fake) bed {
	t.Helper()
	return newBedWith(t, cluster, fake, bedOptions{})
}

// A site has what tests choose of the handler that serves all addresses.
type site struct {
	transport.Settings
	Version                      string
	NoIntrospection              bool
	AllowedHosts, AllowedOrigins []string
	Registry                     *identity.Registry
	Started                      <-chan struct{}
	Languages                    *language.Set
	Compat, DisabledCompat       []compat.API
	Counts                       *compat.Counts
	Agents, Metrics              http.Handler
	Logger                       *zap.Logger
}

// handler returns the handler, assembled as in package server. eng may be nil for requests that don't
// reach it.
func (s site) handler(eng *engine.Engine) http.Handler {
	known := eng != nil
	if !known {
		eng = engine.New(clustertest.NewFake(), nil, engine.Config{Logger: zap.NewNop(), Callers: s.Registry})
	}
	if s.Languages == nil {
		s.Languages = language.Default()
	}
	measured, links := versions.New(&eng.Services, s.Languages), download.NewLinks(nil)
	admission := &routes.Admission{Registry: s.Registry, Failed: eng.FailureRecorder()}
	s.Admit = admission.Admit
	settings, starting := s.WithDefaults(), transport.Starting{Over: s.Started}
	options := routes.Options{
		Admission: admission, Origins: s.AllowedOrigins, Starting: starting, Compat: s.Compat, DisabledCompat: s.DisabledCompat, Counts: s.Counts, Agents: s.Agents, Metrics: s.Metrics,
		API: Handler(Options{
			Engine: &eng.Services, Links: links, Languages: s.Languages, Versions: measured, Version: s.Version, NoIntrospection: s.NoIntrospection, Starting: starting, Logger: s.Logger, Settings: settings,
		}),
		Downloads: download.Handler{Links: links, Files: eng.Files, Outputs: eng.Executions, Callers: admission, Refuse: transport.Presenter{Logger: s.Logger}.Refuse},
		Services:  compat.Services{Engine: &eng.Services, Capacity: eng.Capacity, Early: settings.Early, Languages: s.Languages, Versions: measured, MaxBody: settings.MaxBody, Peers: settings.Peers, Logger: s.Logger},
	}
	if known {
		options.Health = eng.Health
	}
	open := func() bool { return false } // proxies are checked in package routes
	return &routes.Gate{Hosts: s.AllowedHosts, Origins: s.AllowedOrigins, Open: open, Logger: s.Logger, Next: routes.New(options)}
}

// bedOptions are a site, and the first administrator's token; "" means none is required.
type bedOptions struct {
	site
	Token string
	Alert pool.AlertRule

	quotas *quota.Ledger
	free   func(ctx context.Context, id runtime.TenantID) error
}

// newRegistry returns a registry with the token, over a store. Without a store it keeps nothing.
func (o bedOptions) newRegistry(t testing.TB, db *store.Store) *identity.Registry {
	t.Helper()
	config := identity.Config{FirstToken: o.Token, Open: o.Token == "", Key: make([]byte, 32), Logger: zap.NewNop(), Free: o.free}
	if o.quotas != nil {
		config.Quotas = o.quotas
	}
	if db == nil {
		return identity.New(config)
	}
	config.Store = db
	registry := identity.New(config)
	if err := registry.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return registry
}

func newBedWith(t testing.TB, cluster runtime.Cluster, fake *clustertest.Fake, options bedOptions) bed {
	t.Helper()
	options.AllowedHosts, options.Logger = []string{"127.0.0.1"}, zap.NewNop()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	options.quotas = quota.New()
	log, err := audit.New(audit.Config{Store: db})
	if err != nil {
		t.Fatal(err)
	}
	var eng *engine.Engine
	options.free = func(ctx context.Context, id runtime.TenantID) error { return eng.FreeTenant(ctx, id) }
	options.Registry = options.newRegistry(t, db)
	eng = engine.New(cluster, db, engine.Config{Dir: t.TempDir(), Logger: zap.NewNop(), Alert: options.Alert, Quotas: options.quotas, Callers: options.Registry, Audit: log})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- eng.Run(ctx) }()
	go func() { ended <- log.Run(ctx) }()
	<-eng.Restored()
	server := httptest.NewUnstartedServer(options.handler(eng))
	server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	server.Config.ConnContext = clients.ConnContext
	server.Start()
	t.Cleanup(func() {
		stop()
		server.Close()
		if err := errors.Join(fake.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); <-ended; <-ended })
	return bed{t, server.URL, eng, options.Registry}
}

// send sends an operation with the variables "in" and "id", and decodes its data into out. It
// returns the code and the field of the first error.
func (b bed) send(query string, variables map[string]any, out any) (code, field any) {
	b.t.Helper()
	body, err := json.Marshal(map[string]any{"query": query, "variables": variables})
	if err != nil {
		b.t.Fatal(err)
	}
	got := ask(b.t, "POST", b.url, string(body), nil)
	if len(got.Errors) > 0 {
		if out != nil {
			b.t.Fatalf("%s: %+v", query, got.Errors)
		}
		return got.code(), got.Errors[0].Extensions["field"]
	}
	if out != nil {
		data, _ := json.Marshal(got.Data)
		if err := json.Unmarshal(data, out); err != nil {
			b.t.Fatalf("%s: %v", data, err)
		}
	}
	return nil, nil
}

type in = map[string]any

func (b bed) environment(id string, size int) {
	b.t.Helper()
	var out struct{ PutEnvironment struct{ Created bool } }
	b.send(`mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`, in{"in": in{"id": id, "poolSize": size}}, &out)
	if !out.PutEnvironment.Created {
		b.t.Fatalf("%s was there", id)
	}
}

func (b bed) claim(environment string) string {
	b.t.Helper()
	var out struct {
		ClaimRunner struct{ Runner struct{ ID string } }
	}
	b.send(`mutation($in: ClaimRunnerInput!) { claimRunner(input: $in) { runner { id } } }`, in{"in": in{"environmentId": environment, "waitFor": 30}}, &out)
	return out.ClaimRunner.Runner.ID
}

func (b bed) start(input in) string {
	b.t.Helper()
	var out struct {
		StartExecution struct{ Execution struct{ ID string } }
	}
	b.send(`mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`, in{"in": input}, &out)
	return out.StartExecution.Execution.ID
}

// watch subscribes over a separate connection.
func (b bed) watch(query string, variables in) client {
	b.t.Helper()
	c, err := dial(b.t, b.url, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	c.send(message{Type: "connection_init"})
	c.receive("connection_ack")
	payload, _ := json.Marshal(in{"query": query, "variables": variables})
	c.send(message{ID: "1", Type: "subscribe", Payload: payload})
	return c
}

// next decodes the next event's data into out.
func (c client) next(out any) {
	c.t.Helper()
	var payload struct {
		Data   json.RawMessage
		Errors []any
	}
	if err := json.Unmarshal(c.receive("next").Payload, &payload); err != nil || len(payload.Errors) > 0 {
		c.t.Fatalf("%v %v", err, payload.Errors)
	}
	if err := json.Unmarshal(payload.Data, out); err != nil {
		c.t.Fatal(err)
	}
}

// limitless makes an environment with high limits for output and time.
func (b bed) limitless(id string) {
	b.t.Helper()
	b.send(`mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`,
		in{"in": in{"id": id, "poolSize": 1, "outputLimit": "2147483648", "defaultTimeLimit": 600}}, &struct{}{})
}
