package poseidon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/compat"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/server/routes"
	"github.com/rockpool/rockpool/test/clustertest"
	"github.com/rockpool/rockpool/test/wait"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

const (
	token   = "a token of enough characters"
	maxHeld = 2 << 20 // bytes of a token's bodies
)

// A bed is the API over an engine with a fake cluster.
type bed struct {
	t        testing.TB
	url      string
	token    string
	tokenID  string // of one that as made
	registry *identity.Registry
	engine   *engine.Engine
	fake     *clustertest.Fake
	stop     func() // as a server does
	handler  http.Handler
	api      *api
	peers    *clients.Limiter
}

func newBed(t testing.TB, options Options) bed {
	t.Helper()
	return newBounded(t, options, clients.Bounds{})
}

// newBounded returns a bed whose callers have these limits, and the memory that all beds share.
func newBounded(t testing.TB, options Options, bounds clients.Bounds) bed {
	t.Helper()
	fake := clustertest.NewFake()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	quotas := quota.New()
	var eng *engine.Engine
	registry := identity.New(identity.Config{FirstToken: token, Key: make([]byte, 32), Logger: zap.NewNop(), Store: db, Quotas: quotas, Free: func(ctx context.Context, id runtime.TenantID) error { return eng.FreeTenant(ctx, id) }})
	if err := registry.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	eng = engine.New(fake, db, engine.Config{Dir: t.TempDir(), Logger: zap.NewNop(), Quotas: quotas, Callers: registry, Alert: pool.AlertRule{Threshold: 0.5, Timeout: time.Millisecond}})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	<-eng.Restored()
	bounds.Bodies, bounds.TokenBodies = 1<<30, cmp.Or(bounds.TokenBodies, maxHeld)
	mux, bounded := http.NewServeMux(), clients.New(bounds)
	services := compat.Services{Engine: &eng.Services, Version: "1.2.3", MaxBody: 1 << 20, Peers: bounded, Logger: zap.NewNop()}
	opened := New(options).(*api)
	opened.closeTime, opened.quitGrace = wait.Limit, wait.Limit // no test asserts them
	compat.Mount(mux, services, &routes.Admission{Registry: registry}, new(compat.Counts), opened)
	streams, endStreams := context.WithCancel(context.Background())
	var requests sync.WaitGroup // those of WebSockets end later than the server
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		defer requests.Done()
		mux.ServeHTTP(w, r)
	}))
	server.Config.BaseContext = func(net.Listener) context.Context { return streams }
	server.Config.ConnContext = clients.ConnContext
	listener := bounded.Listen(server.Listener)
	server.Listener = listener
	server.Start()
	t.Cleanup(func() {
		endStreams()
		http.DefaultClient.CloseIdleConnections()
		server.Close()
		listener.Wait()
		requests.Wait()
		stop()
		if err := errors.Join(<-ended, fake.Close(), db.Close()); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return bed{t, server.URL + root, token, "", registry, eng, fake, endStreams, mux, opened, bounded}
}

// as returns the bed for a new tenant's client with a role.
func (b bed) as(tenant runtime.TenantID, role access.Role) bed {
	b.t.Helper()
	if _, _, err := b.registry.PutTenant(b.t.Context(), tenant, nil, nil); err != nil {
		b.t.Fatal(err)
	}
	made, text, err := b.registry.CreateToken(b.t.Context(), access.Server(), identity.NewToken{Kind: access.KindToken, Name: "test", Role: role, Tenant: tenant})
	if err != nil {
		b.t.Fatal(err)
	}
	b.tokenID = made.ID
	b.token = text
	return b
}

// call sends a request, and decodes the answer's body.
func (b bed) call(method, path, body string) (status int, answer any) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set(TokenHeader, b.token)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return response.StatusCode, decoded(text)
}

func decoded(text []byte) (answer any) {
	if len(text) > 0 && json.Unmarshal(text, &answer) != nil {
		return string(text)
	}
	return answer
}

// expect calls with this expected status, and returns a field of the body.
func (b bed) expect(status int, method, path, body, field string) string {
	b.t.Helper()
	got, answer := b.call(method, path, body)
	return b.fieldOf(status, got, answer, method, path, body, field)
}

// refused is expect for a body that the API doesn't read completely. It uses no connection: the
// server would close that half a second later, and unread bytes could destroy the answer.
func (b bed) refused(status int, method, path, body, field string) string {
	b.t.Helper()
	r := httptest.NewRequestWithContext(b.t.Context(), method, root+path, strings.NewReader(body))
	r.Header.Set(TokenHeader, b.token)
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	return b.fieldOf(status, w.Code, decoded(w.Body.Bytes()), method, path, body, field)
}

func (b bed) fieldOf(status, got int, answer any, method, path, body, field string) string {
	b.t.Helper()
	if got != status {
		b.t.Fatalf("%s %s %.100s is answered with %d, not %d: %v", method, path, body, got, status, answer)
	}
	fields, _ := answer.(map[string]any)
	value, _ := fields[field].(string)
	return value
}

const put = `{"image":"host","prewarmingPoolSize":2,"cpuLimit":20,"memoryLimit":64,"networkAccess":false,"exposedPorts":[]}`

// claim creates environment 1, and claims a runner there.
func (b bed) claim() (path string) {
	b.t.Helper()
	b.expect(http.StatusCreated, http.MethodPut, "/execution-environments/1", put, "")
	return b.again()
}

// again claims a further runner.
func (b bed) again() (path string) {
	b.t.Helper()
	var id string
	wait.For(b.t, "an idle runner", func() bool {
		status, answer := b.call(http.MethodPost, "/runners", `{"executionEnvironmentId":1,"inactivityTimeout":60}`)
		if status == http.StatusOK {
			id = answer.(map[string]any)["runnerId"].(string)
		}
		return id != ""
	})
	return "/runners/" + id
}

// execute requests an execution, and returns the address of its WebSocket.
func (b bed) execute(runner, command string) string {
	b.t.Helper()
	body, _ := json.Marshal(map[string]any{"command": command, "timeLimit": 30})
	return b.expect(http.StatusOK, http.MethodPost, runner+"/execute", string(body), "websocketUrl")
}

// open opens a WebSocket.
func (b bed) open(url string) *websocket.Conn {
	b.t.Helper()
	ws, _, err := websocket.Dial(b.t.Context(), url, &websocket.DialOptions{HTTPHeader: http.Header{TokenHeader: {b.token}}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = ws.CloseNow() })
	return ws
}

// frames reads all frames to the end.
func frames(t testing.TB, ws *websocket.Conn) (all []string, code websocket.StatusCode) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
	defer cancel()
	for {
		_, data, err := ws.Read(ctx)
		if err != nil {
			return all, websocket.CloseStatus(err)
		}
		all = append(all, string(data))
	}
}
