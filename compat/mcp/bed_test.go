package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/compat"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/runtime/language"
	"github.com/rockpool/rockpool/runtime/quota"
	requests "github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/server/routes"
	"github.com/rockpool/rockpool/test/clustertest"
	"github.com/rockpool/rockpool/test/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A bed is the API over an engine with a fake cluster.
type bed struct {
	t        testing.TB
	url      string
	direct   http.Handler // what the server at url serves with
	api      *API
	engine   *engine.Engine
	registry *identity.Registry
	audit    *audit.Log
	counts   *compat.Counts
	peers    *clients.Limiter
	ends     func() // what outlasts requests, as a server that stops; it waits for that
}

// The limits of a token.
const (
	maxOperations = 8
	maxHeld       = 256 << 20 // bytes
)

const firstToken = "the first administrator's token"

func newBed(t testing.TB, change func(a *API)) *bed {
	t.Helper()
	return newBedOf(t, maxHeld, change)
}

// newBedOf returns a bed whose tokens may hold that many bytes.
func newBedOf(t testing.TB, held int64, change func(a *API)) *bed {
	t.Helper()
	fake := clustertest.NewFake()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	quotas := quota.New()
	log, err := audit.New(audit.Config{Store: db})
	if err != nil {
		t.Fatal(err)
	}
	var eng *engine.Engine
	registry := identity.New(identity.Config{FirstToken: firstToken, Key: make([]byte, 32), Logger: zap.NewNop(), Free: func(ctx context.Context, id runtime.TenantID) error { return eng.FreeTenant(ctx, id) }, Store: db, Quotas: quotas})
	if err := registry.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	eng = engine.New(fake, db, engine.Config{Dir: t.TempDir(), Logger: zap.NewNop(), Quotas: quotas, Callers: registry, Audit: log})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- eng.Run(ctx) }()
	go func() { ended <- log.Run(ctx) }()
	<-eng.Restored()
	b := &bed{t: t, api: New(), engine: eng, registry: registry, audit: log, counts: new(compat.Counts), peers: clients.New(clients.Bounds{AllConnections: 1000, Connections: 1000, Operations: 100, TokenOperations: maxOperations, Bodies: 1 << 30, TokenBodies: held, PeerBodies: 1 << 30})}
	if change != nil {
		change(b.api)
	}
	mux := http.NewServeMux()
	services := compat.Services{Engine: &eng.Services, Languages: language.Default(), Version: "1.2.3", MaxBody: 1 << 20, Peers: b.peers, Logger: zap.NewNop()}
	compat.Mount(mux, services, &routes.Admission{Registry: registry}, b.counts, b.api)
	var lasting sync.WaitGroup
	ends, end := context.WithCancelCause(context.Background())
	life := clients.Life{Ends: ends, Enter: func() func() { lasting.Add(1); return lasting.Done }}
	b.direct = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { mux.ServeHTTP(w, r.WithContext(life.In(r.Context()))) })
	server := httptest.NewServer(b.direct)
	b.url = server.URL + "/mcp"
	b.ends = func() {
		end(errors.New("the server is stopping"))
		lasting.Wait()
	}
	t.Cleanup(func() {
		end(nil)
		stop()
		<-ended
		<-ended
		http.DefaultClient.CloseIdleConnections()
		server.Close()
		_ = fake.Close()
		_ = db.Close()
	})
	size, image, shared := 2, "host", true
	for _, id := range []runtime.EnvironmentID{"shell", "python"} {
		if _, _, err := eng.Environments.Put(access.With(t.Context(), access.Server()), requests.Environment{ID: id, PoolSize: &size, Image: &image, Shared: &shared}); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// token returns a new token of a client.
func (b *bed) token(tenant runtime.TenantID) (text, id string) {
	b.t.Helper()
	if tenant != runtime.DefaultTenant {
		if _, _, err := b.registry.PutTenant(b.t.Context(), tenant, nil, nil); err != nil {
			b.t.Fatal(err)
		}
	}
	made, text, err := b.registry.CreateToken(b.t.Context(), access.Server(), identity.NewToken{Kind: access.KindToken, Name: "agent", Role: access.Client, Tenant: tenant})
	if err != nil {
		b.t.Fatal(err)
	}
	return text, made.ID
}

// A bearer sends a token, and the id of the MCP session that it got.
type bearer struct {
	token   string
	session string // instead of the client's own; "" means as the client has it
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	if b.session != "" {
		r.Header.Set(sessionHeader, b.session)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// An agent is a client with an MCP session.
type agent struct {
	*sdk.ClientSession
	t        testing.TB
	progress chan string
}

func (b *bed) agent(token string) *agent {
	b.t.Helper()
	a, err := b.connect(token)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = a.Close() })
	return a
}

func (b *bed) connect(token string) (*agent, error) {
	a := &agent{t: b.t, progress: make(chan string, 1000)}
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			select {
			case a.progress <- r.Params.Message:
			default:
			}
		},
	})
	var err error
	a.ClientSession, err = client.Connect(b.t.Context(), &sdk.StreamableClientTransport{Endpoint: b.url, HTTPClient: &http.Client{Transport: bearer{token: token}}, MaxRetries: -1, DisableStandaloneSSE: true}, nil)
	return a, err
}

type object = map[string]any

// call calls a tool, and decodes its structured content.
func (a *agent) call(name string, arguments any, into any) *sdk.CallToolResult {
	a.t.Helper()
	result, err := a.CallTool(a.t.Context(), &sdk.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		a.t.Fatalf("%s: %v", name, err)
	}
	if into != nil {
		if result.IsError {
			a.t.Fatalf("%s: %s", name, textIn(result))
		}
		decodeContent(a.t, result, into)
	}
	return result
}

func decodeContent(t testing.TB, result *sdk.CallToolResult, into any) {
	t.Helper()
	data, _ := json.Marshal(result.StructuredContent)
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
}

func textIn(result *sdk.CallToolResult) string {
	for _, c := range result.Content {
		if text, ok := c.(*sdk.TextContent); ok {
			return text.Text
		}
	}
	return ""
}

// refused calls a tool that must fail.
func (a *agent) refused(name string, arguments any, code runtime.Code, field string) problem {
	a.t.Helper()
	result := a.call(name, arguments, nil)
	var got struct{ Error problem }
	decodeContent(a.t, result, &got)
	if !result.IsError || got.Error.Code != code || got.Error.Field != field {
		a.t.Errorf("%s %v: %s %+v, not %s for %q", name, arguments, textIn(result), got.Error, code, field)
	}
	return got.Error
}

// held returns how many runners are claimed.
func (b *bed) held() int {
	b.t.Helper()
	all, err := b.engine.Runners.List(access.With(context.Background(), access.Server()), requests.Runners{States: []runtime.RunnerState{runtime.RunnerClaimed}})
	if err != nil {
		b.t.Fatal(err)
	}
	return len(all)
}

// freed waits until no runner is claimed.
func (b *bed) freed() {
	b.t.Helper()
	wait.For(b.t, "all runners are released", func() bool { return b.held() == 0 })
}
