package graph

import (
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
	"github.com/rockpool/rockpool/runtime/clustertest"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/store"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop")) // connections that the tests' client keeps
}

// A bed is the API over an engine with a fake cluster and a real store.
type bed struct {
	t      testing.TB
	url    string
	engine *engine.Engine
	book   *identity.Registry
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

// bedOptions are a handler's options, and the first administrator's token; "": none is required.
type bedOptions struct {
	Options
	Token string
	Alert pool.AlertRule

	quotas *quota.Ledger
	free   func(ctx context.Context, id runtime.TenantID) error
}

// book returns a book with the token, over a store; nil: without storage.
func (o bedOptions) book(t testing.TB, db *store.Store) *identity.Registry {
	t.Helper()
	config := identity.Config{FirstToken: o.Token, Open: o.Token == "", Key: make([]byte, 32), Logger: zap.NewNop(), Free: o.free}
	if o.quotas != nil {
		config.Quotas = o.quotas
	}
	if db == nil {
		return identity.New(config)
	}
	config.Store = db
	book := identity.New(config)
	if err := book.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return book
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
	options.Book = options.book(t, db)
	eng = engine.New(cluster, db, engine.Config{Dir: t.TempDir(), Logger: zap.NewNop(), Alert: options.Alert, Quotas: options.quotas, Callers: options.Book, Audit: log})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- eng.Run(ctx) }()
	go func() { ended <- log.Run(ctx) }()
	<-eng.Restored()
	server := httptest.NewUnstartedServer(Handler(eng, options.Options))
	server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	server.Config.ConnContext = ConnContext
	server.Start()
	t.Cleanup(func() {
		stop()
		server.Close()
		if err := errors.Join(fake.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); <-ended; <-ended })
	return bed{t, server.URL, eng, options.Book}
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
