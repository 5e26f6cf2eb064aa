package compat

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/test/pipes"
	"github.com/rockpool/rockpool/test/wait"
)

// deadlines records the read deadlines that were set.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.set = append(d.set, at)
	return nil
}

// A body is limited however its length is announced. The deadline of the body doesn't apply to the
// answer.
func TestBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Services{MaxBody: 100_000}
		read := func(from io.Reader, length int64) (string, *deadlines, error) {
			r := httptest.NewRequest(http.MethodPost, "/", from)
			r.ContentLength = length
			w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
			text, err := s.ReadBody(w, r)
			return string(text), w, err
		}
		for _, size := range []int{0, 1, clients.FreeBody - 1, clients.FreeBody, clients.FreeBody + 1, 100_000} {
			for _, length := range []int64{-1, int64(size)} {
				body := strings.Repeat("x", size)
				text, w, err := read(strings.NewReader(body), length)
				if err != nil || text != body {
					t.Errorf("%d bytes, of which %d are announced: %d, %v", size, length, len(text), err)
				}
				if len(w.set) != 2 || !w.set[0].Equal(time.Now().Add(clients.DefaultSilence)) || !w.set[1].IsZero() {
					t.Errorf("deadlines %v", w.set)
				}
			}
		}
		status := func(from io.Reader, length int64) int {
			_, _, err := read(from, length)
			refused, ok := errors.AsType[*BodyError](err)
			if !ok {
				t.Fatal(err)
			}
			return refused.Status
		}
		for _, length := range []int64{100_001, -1} {
			if got := status(strings.NewReader(strings.Repeat("x", 100_001)), length); got != http.StatusRequestEntityTooLarge {
				t.Errorf("a large body: got %d, want %d", got, http.StatusRequestEntityTooLarge)
			}
		}
		if got := status(io.MultiReader(strings.NewReader("x"), broken{}), 10); got != http.StatusBadRequest {
			t.Errorf("a body that breaks off: got %d, want %d", got, http.StatusBadRequest)
		}
	})
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// reader is an API that reads bodies.
type reader struct{ testAPI }

func (*reader) Headers() []string { return nil }
func (*reader) Register(services Services, routes *Routes) {
	by := Authentication{Shown: func(r *http.Request) string { return r.Header.Get("X-Token") }, Refuse: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusTooManyRequests) }}
	routes.Handle("/test/", services.Authenticated(by, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := services.ReadBody(w, r)
		if refused, ok := errors.AsType[*BodyError](err); ok {
			w.WriteHeader(refused.Status)
			return
		}
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, runtime.CodeOf(err))
			return
		}
		fmt.Fprint(w, len(text))
	})))
}

// anybody accepts every token, and uses it as the id.
type anybody struct{}

func (anybody) Known(_ *http.Request, text string) (identity.Caller, error) {
	return identity.Caller{Principal: access.Principal{ID: text}}, nil
}

// A client that never finishes its bodies uses up its own limit, but not that of others.
func TestSlowBodies(t *testing.T) {
	const size = 1 << 20
	all := clients.New(clients.Bounds{Bodies: 4 * size, TokenBodies: 2 * size})
	mux := http.NewServeMux()
	Mount(mux, Services{MaxBody: size, Peers: all}, anybody{}, new(Counts), &reader{})
	server := httptest.NewServer(mux)
	defer server.Close()
	send := func(token string, body io.Reader) string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/test/", body)
		if err != nil {
			t.Error(err)
			return ""
		}
		r.Header.Set("X-Token", token)
		r.ContentLength = size
		answer, err := server.Client().Do(r)
		if err != nil {
			return err.Error()
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		return string(text)
	}
	whole := strings.Repeat("x", size)
	ended := make(chan string, 2)
	var ends []*io.PipeWriter
	for range cap(ended) {
		from, to := io.Pipe()
		ends = append(ends, to)
		go func() { ended <- send("first", from) }()
		if _, err := io.WriteString(to, whole[:size*3/4]); err != nil {
			t.Fatal(err)
		}
	}
	// The memory of a body doubles as it arrives: half of it could still be in the kernel's buffers.
	wait.For(t, "the beginnings have arrived", func() bool { return all.Usage().BodyBytes == 2*(size-clients.FreeBody) })
	if got := send("first", strings.NewReader(whole)); got != "QUOTA_EXCEEDED" {
		t.Errorf("a third body of the slow client: got %.80q, want QUOTA_EXCEEDED", got)
	}
	if got := send("second", strings.NewReader(whole)); got != fmt.Sprint(size) {
		t.Errorf("another client's: %.80q", got)
	}
	for _, end := range ends {
		_, _ = io.WriteString(end, whole[size*3/4:])
		_ = end.Close()
		if got := <-ended; got != fmt.Sprint(size) {
			t.Errorf("the slow client's: %.80q", got)
		}
	}
	wait.For(t, "nothing is held", func() bool { return all.Usage().BodyBytes == 0 })
}

// The client gets an answer to a refused body, whatever it still has to send, and its connection is
// closed. A connection whose body has ended stays open.
func TestRefusedBodiesAreAnswered(t *testing.T) {
	const (
		rest  = 5 * time.Second // for the rest of a refused body
		idle  = 2 * rest
		most  = 100_000
		large = "Content-Length: 90000\r\n\r\n"
	)
	chunk := func(size int) string { return fmt.Sprintf("%x\r\n%s\r\n", size, strings.Repeat("x", size)) }
	const chunked = "Transfer-Encoding: chunked\r\n\r\n"
	for name, test := range map[string]struct {
		head, body      string
		every           time.Duration // a byte comes after the body
		status          int
		answered, ended time.Duration // since it began
	}{
		"stalled body: 408 after the silence":                   {large, "abc", 0, http.StatusRequestTimeout, clients.DefaultSilence, clients.DefaultSilence},
		"trickling body: 408 after the body's time":             {large, "", 7 * time.Second, http.StatusRequestTimeout, clients.MaxBodyTime, clients.MaxBodyTime},
		"long body: 413 at once":                                {fmt.Sprintf("Content-Length: %d\r\n\r\n", most+1), "", 0, http.StatusRequestEntityTooLarge, 0, 0},
		"long body in chunks: 413, then idle":                   {chunked, chunk(most+1) + "0\r\n\r\n", 0, http.StatusRequestEntityTooLarge, 0, idle},
		"long body that stalls: 413, then closed":               {chunked, chunk(most + 1), 0, http.StatusRequestEntityTooLarge, rest, rest},
		"no memory: 503, then idle":                             {large, strings.Repeat("x", 90_000), 0, http.StatusServiceUnavailable, 0, idle},
		"no memory, stalled body: 503, then closed":             {large, strings.Repeat("x", 60_000), 0, http.StatusServiceUnavailable, rest, rest},
		"no memory, trickling body: 503, then closed":           {large, strings.Repeat("x", 60_000), 300 * time.Millisecond, http.StatusServiceUnavailable, rest, rest},
		"no memory for a chunk, stalled body: 503, then closed": {chunked, chunk(60_000), 0, http.StatusServiceUnavailable, rest, rest},
	} {
		synctest.Test(t, func(t *testing.T) {
			bounds := clients.Bounds{Bodies: 10 * most, TokenBodies: 10 * most}
			if test.status == http.StatusServiceUnavailable {
				bounds.TokenBodies = 30_000
			}
			mux, all := http.NewServeMux(), clients.New(bounds)
			Mount(mux, Services{MaxBody: most, Peers: all}, anybody{}, new(Counts), &reader{})
			listener := make(pipes.Listener)
			server := &http.Server{Handler: all.Handler(mux), IdleTimeout: idle}
			served, sent := make(chan struct{}), make(chan struct{})
			go func() { defer close(served); _ = server.Serve(listener) }()
			client, conn := net.Pipe()
			listener <- conn
			began := time.Now()
			go func() {
				defer close(sent)
				_, err := io.WriteString(client, "POST /test/ HTTP/1.1\r\nHost: x\r\nX-Token: a\r\n"+test.head+test.body)
				synctest.Wait()
				if used := all.Usage().BodyBytes; used != 0 {
					t.Errorf("%s: %d bytes are held, want 0", name, used)
				}
				for err == nil && test.every > 0 {
					time.Sleep(test.every)
					_, err = io.WriteString(client, "x")
				}
			}()
			in := bufio.NewReader(client)
			_ = client.SetDeadline(began.Add(2 * clients.MaxBodyTime))
			answer, err := http.ReadResponse(in, nil)
			if err != nil || answer.StatusCode != test.status {
				t.Fatalf("%s: %+v, %v", name, answer, err)
			}
			if took := time.Since(began); took != test.answered {
				t.Errorf("%s: the answer took %v, not %v", name, took, test.answered)
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			_, err = in.ReadByte()
			if took := time.Since(began).Truncate(time.Second); err != io.EOF || took != test.ended { // net/http may add half a second
				t.Errorf("%s: the connection ended after %v with %v, not after %v", name, took, err, test.ended)
			}
			<-sent
			close(listener)
			_ = server.Close()
			<-served
			_ = client.Close()
			synctest.Wait()
		})
	}
}
