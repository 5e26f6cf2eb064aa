package download

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/executions"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/test/wait"
)

// A download of output ends with the token or grant of its caller.
func TestDownloadsEndWithTheirCaller(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	w := &errorKeeper{ReadSeeker: bytes.NewReader(make([]byte, 100)), ended: ctx.Err}
	if n, err := io.ReadFull(w, make([]byte, 10)); n != 10 || err != nil || w.failed != nil {
		t.Fatalf("%d, %v", n, err)
	}
	end()
	if n, err := w.Read(make([]byte, 10)); n != 0 || !errors.Is(err, context.Canceled) || !errors.Is(w.failed, context.Canceled) {
		t.Errorf("%d, %v, %v", n, err, w.failed)
	}
	var read int
	cast := endableSource{endless{&read}, ctx.Err}
	if err := writeCast(io.Discard, runtime.Execution{}, cast); !errors.Is(err, context.Canceled) || read > 0 {
		t.Errorf("%d records, %v", read, err)
	}
}

// endless is output of a program that doesn't stop soon.
type endless struct{ read *int }

func (e endless) Next() (executions.Record, int64, error) {
	if *e.read++; *e.read > 10_000 {
		return executions.Record{}, 0, io.EOF
	}
	return executions.Record{Stream: runtime.Stdout, Data: bytes.Repeat([]byte("x"), 1<<10)}, 0, nil
}

func (endless) Lost() int64 { return 0 }

// OpenFile returns a large file. Reading it continues after its context has ended.
func (e endless) OpenFile(context.Context, runtime.RunnerID, string, int64) (runtime.File, io.ReadCloser, error) {
	return runtime.File{Size: 1 << 40}, e, nil
}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func (endless) Close() error { return nil }

// A tokenHolder sends a token.
type tokenHolder struct {
	*identity.Registry
	secret string
}

func (h tokenHolder) Shown(*http.Request) (identity.Caller, bool, error) {
	known, err := h.Authenticate(h.secret)
	return known, true, err
}

// revocable is a store of one token.
type revocable struct{ identity.Store }

func (revocable) PutTokens(context.Context, ...access.Token) error { return nil }

// cutting serves endless downloads to the holder of a token. It sends a handler's panic to ended.
func cutting(t *testing.T) (server *httptest.Server, ended chan any, revoke func()) {
	t.Helper()
	registry := identity.New(identity.Config{Store: revocable{}, Key: make([]byte, 32), Logger: zap.NewNop()})
	made, secret, err := registry.CreateToken(t.Context(), access.Server(), identity.NewToken{Kind: access.KindToken, Name: "t", Role: access.Admin, AllTenants: true})
	if err != nil {
		t.Fatal(err)
	}
	h := Handler{Links: NewLinks(nil), Files: endless{new(int)}, Callers: tokenHolder{registry, secret}}
	mux := http.NewServeMux()
	h.Register(mux)
	mux.HandleFunc("/recording", func(w http.ResponseWriter, r *http.Request) {
		ctx, release, err := h.admit(w, r, r.URL.Query(), "output")
		if err != nil {
			t.Error(err)
			return
		}
		defer release()
		sendCast(w, runtime.Execution{}, endableSource{endless{new(int)}, ctx.Err})
	})
	ended = make(chan any, 1)
	server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			why := recover()
			ended <- why
			panic(why)
		}()
		mux.ServeHTTP(w, r)
	}))
	return server, ended, func() {
		if _, err := registry.RevokeToken(t.Context(), access.Server(), made.ID, false); err != nil {
			t.Fatal(err)
		}
	}
}

// A revoked token ends its downloads, also if the client isn't reading. The client sees that the
// download is incomplete.
func TestRevokedTokenCutsDownloads(t *testing.T) {
	for _, path := range []string{"/files/r?path=f", "/recording"} {
		server, ended, revoke := cutting(t)
		conn, accepted := net.Pipe() // unread bytes stall the server immediately
		_ = server.Listener.Close()
		conns, closed := make(chan net.Conn, 1), make(chan struct{})
		conns <- accepted
		server.Listener = one{conns, closed, sync.OnceFunc(func() { close(closed) })}
		server.Start()
		if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response, err)
		}
		if _, err := io.ReadFull(response.Body, make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		revoke()
		if why := wait.Receive(t, ended, "the end of "+path); why != http.ErrAbortHandler {
			t.Errorf("%s: got %v, want %v", path, why, http.ErrAbortHandler)
		}
		if _, err := io.Copy(io.Discard, response.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: the client reads on to %v, want %v", path, err, io.ErrUnexpectedEOF)
		}
		_ = response.Body.Close()
		_ = conn.Close()
		server.Close()
	}
}

// Over HTTP/2 the download's stream is reset.
func TestRevokedTokenCutsDownloadsByHTTP2(t *testing.T) {
	server, ended, revoke := cutting(t)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	get := func() *http.Response {
		t.Helper()
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/files/r?path=f", nil)
		response, err := server.Client().Do(request)
		if err != nil || response.ProtoMajor != 2 {
			t.Fatal(response, err)
		}
		return response
	}
	response := get()
	defer response.Body.Close()
	if _, err := io.ReadFull(response.Body, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	revoke()
	if why := wait.Receive(t, ended, "the end"); why != http.ErrAbortHandler {
		t.Error(why)
	}
	if _, err := io.Copy(io.Discard, response.Body); err == nil {
		t.Error("the client reads it as whole")
	}
}

// one is a listener of one connection.
type one struct {
	conn   chan net.Conn
	closed chan struct{}
	close  func()
}

func (l one) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conn:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l one) Close() error { l.close(); return nil }

func (one) Addr() net.Addr { return &net.TCPAddr{} }

// If the caller ends after its download, the connection stays usable.
func TestWholeDownloadIsNotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		h := Handler{Callers: nobody{}, Links: NewLinks(nil)}
		address := h.Links.Output(access.Principal{}, "x")
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		_, release, err := h.admit(w, r, r.URL.Query(), "output", "x")
		if err != nil {
			t.Fatal(err)
		}
		release()
		end()
		synctest.Wait() // a separate goroutine cuts a download
		if w.set {
			t.Error("it is cut")
		}
	})
}

// deadlines records whether a deadline was set.
type deadlines struct {
	*httptest.ResponseRecorder
	set bool
}

func (d *deadlines) SetWriteDeadline(time.Time) error {
	d.set = true
	return nil
}
