package compat

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/identity"
)

// testAPI is an API with one route, which records the caller.
type testAPI struct{ called access.Principal }

func (*testAPI) Name() string { return "test" }
func (*testAPI) Path() string { return "/test/" }

func (d *testAPI) Headers() []string { return []string{"X-Test"} }

func (d *testAPI) Register(services Services, routes *Routes) {
	by := Authentication{
		Shown:  func(r *http.Request) string { return r.Header.Get("X-Token") },
		Refuse: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusUnauthorized) },
	}
	routes.Handle("GET /test/{id}", services.Authenticated(by, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.called = access.FromContext(r.Context())
		switch r.PathValue("id") {
		case "panic":
			panic(http.ErrAbortHandler)
		case "missing":
			w.WriteHeader(http.StatusNotFound)
		}
	})))
}

type testCallers struct{ registry *identity.Registry }

func (c testCallers) Known(_ *http.Request, text string) (identity.Caller, error) {
	return c.registry.Authenticate(text)
}

// A request counts as an operation from before its body is read until it is answered. A DELETE is
// never refused.
func TestRequestsAreOperations(t *testing.T) {
	all := clients.New(clients.Bounds{TokenOperations: 1})
	mux := http.NewServeMux()
	Mount(mux, Services{MaxBody: 100, Peers: all}, anybody{}, new(Counts), &reader{})
	request := func(method, token string, body io.Reader) int {
		r := httptest.NewRequestWithContext(t.Context(), method, "/test/", body)
		r.Header.Set("X-Token", token)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w.Code
	}
	from, to := io.Pipe()
	first := make(chan int, 1)
	go func() { first <- request(http.MethodPost, "one", from) }()
	if _, err := to.Write([]byte("x")); err != nil { // it is being read
		t.Fatal(err)
	}
	for _, test := range []struct {
		method, token string
		want          int
	}{{http.MethodPost, "one", http.StatusTooManyRequests}, {http.MethodPost, "other", http.StatusOK}, {http.MethodDelete, "one", http.StatusOK}} {
		body := strings.NewReader("all of it is read")
		if got := request(test.method, test.token, body); got != test.want || body.Len() > 0 {
			t.Errorf("%+v is answered with %d, and %d bytes are unread", test, got, body.Len())
		}
	}
	_ = to.Close()
	if got := <-first; got != http.StatusOK {
		t.Errorf("the first is answered with %d, want %d", got, http.StatusOK)
	}
	if got := request(http.MethodPost, "one", strings.NewReader("")); got != http.StatusOK || all.Usage().Operations != 0 {
		t.Errorf("afterwards: %d, %+v", got, all.Usage())
	}
}

func TestRequestsAreAuthenticatedAndCounted(t *testing.T) {
	const token = "a token of enough characters"
	registry := identity.New(identity.Config{FirstToken: token, Key: make([]byte, 32), Logger: zap.NewNop()})
	mux, api, counts := http.NewServeMux(), new(testAPI), new(Counts)
	Mount(mux, Services{}, testCallers{registry}, counts, api)
	request := func(id, shown string) (status int) {
		r := httptest.NewRequest(http.MethodGet, "/test/"+id, nil)
		r.Header.Set("X-Token", shown)
		w := httptest.NewRecorder()
		defer func() {
			if panicked := recover(); panicked != nil && !errors.Is(panicked.(error), http.ErrAbortHandler) {
				panic(panicked)
			}
		}()
		mux.ServeHTTP(w, r)
		return w.Code
	}
	for _, test := range []struct {
		id, shown string
		want      int
	}{{"one", token, 200}, {"two", token, 200}, {"missing", token, 404}, {"one", "wrong", 401}, {"one", "", 401}, {"panic", token, 0}} {
		if got := request(test.id, test.shown); got != test.want {
			t.Errorf("%+v is answered with %d, want %d", test, got, test.want)
		}
	}
	if api.called.Role != access.Admin || api.called.API != "test" {
		t.Errorf("the caller is %+v", api.called)
	}
	got := map[string]int64{}
	for _, c := range counts.Read() {
		got[c.API+" "+c.Pattern+" "+c.Class] = c.Took.Count()
	}
	want := map[string]int64{"test GET /test/{id} 2xx": 2, "test GET /test/{id} 4xx": 3, "test GET /test/{id} 5xx": 1}
	if len(got) != len(want) {
		t.Errorf("counted are %v", got)
	}
	for route, n := range want {
		if got[route] != n {
			t.Errorf("%s was counted %d times, not %d", route, got[route], n)
		}
	}
}
