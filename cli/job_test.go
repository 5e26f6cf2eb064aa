package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alecthomas/kong"
	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

// A fakeServer answers what a job asks, and breaks every connection that it
// can.
type fakeServer struct {
	output []byte // what the program prints
	exit   int

	mu       sync.Mutex // guards what follows
	asked    []string   // names of mutations
	keys     map[string]string
	cut      int // connections that are still to be broken
	released bool
}

func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "" {
		f.stream(w, r)
		return
	}
	var body client.Request
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	answers := map[string]string{
		"claimRunner":    `{"runner": {"id": "r"}}`,
		"updateFiles":    `{"failed": []}`,
		"startExecution": `{"execution": {"id": "x"}}`,
		"releaseRunner":  `{"released": true}`,
	}
	for name, answer := range answers {
		if !strings.Contains(body.Query, name) {
			continue
		}
		f.asked = append(f.asked, name)
		input, _ := body.Variables["input"].(map[string]any)
		if key, ok := input["idempotencyKey"].(string); ok {
			if known, ok := f.keys[name]; ok && known != key {
				http.Error(w, "another key", http.StatusConflict)
				return
			}
			f.keys[name] = key
		}
		if f.cut > 0 && name != "releaseRunner" {
			f.cut--
			panic(http.ErrAbortHandler) // the answer is lost
		}
		f.released = f.released || name == "releaseRunner"
		_, _ = fmt.Fprintf(w, `{"data": {%q: %s}}`, name, answer)
	}
}

// stream serves executionEvents; a cursor is a number of bytes.
func (f *fakeServer) stream(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"graphql-transport-ws"}})
	if err != nil {
		return
	}
	defer conn.CloseNow()
	var init, subscribe client.Frame
	ctx := r.Context()
	if wsjson.Read(ctx, conn, &init) != nil || wsjson.Write(ctx, conn, client.Frame{Type: "connection_ack"}) != nil || wsjson.Read(ctx, conn, &subscribe) != nil {
		return
	}
	var operation struct{ Variables struct{ After string } }
	if json.Unmarshal(subscribe.Payload, &operation) != nil {
		return
	}
	at := 0
	_, _ = fmt.Sscan(operation.Variables.After, &at)
	send := func(event string) bool {
		payload := json.RawMessage(`{"data": {"executionEvents": ` + event + `}}`)
		return wsjson.Write(ctx, conn, client.Frame{ID: "1", Type: "next", Payload: payload}) == nil
	}
	for at < len(f.output) {
		f.mu.Lock()
		cut := f.cut > 0 && rand.IntN(3) == 0
		if cut {
			f.cut--
		}
		f.mu.Unlock()
		if cut {
			return
		}
		end := min(len(f.output), at+1+rand.IntN(100))
		event := fmt.Sprintf(`{"__typename": "ExecutionOutput", "cursor": "%d", "stream": "STDOUT", "base64": %q}`, end, base64.StdEncoding.EncodeToString(f.output[at:end]))
		if !send(event) {
			return
		}
		at = end
	}
	send(fmt.Sprintf(`{"__typename": "ExecutionFinished", "cursor": "end", "execution": {"outcome": "EXITED", "exitCode": %d}}`, f.exit))
}

// Every answer and every stream breaks many times; the output is whole all the
// same, and nothing was done twice under another key.
func TestJobSurvivesBrokenConnections(t *testing.T) {
	output := make([]byte, 20_000)
	for i := range output {
		output[i] = byte(rand.Uint32())
	}
	fake := &fakeServer{output: output, exit: 42, cut: 40, keys: map[string]string{}}
	server := httptest.NewUnstartedServer(fake)
	server.Config.ErrorLog = nil
	server.Start()
	defer server.Close()

	var out, errs bytes.Buffer
	j := &job{follower: follower{client: client.New(server.URL), Streams: Streams{Out: &out, Err: &errs}},
		environment: "python", command: []string{"x"}, files: []client.FileInput{{Path: "a", Base64: []byte("b")}}}
	fake.cut = 3 // of the answers, whose pauses double
	code, err := j.run(t.Context())
	if err != nil || code != 42 || !fake.released {
		t.Fatalf("exit %d, %v, released %v", code, err, fake.released)
	}
	out.Reset()
	fake.cut = 40 // of the streams
	j.execution = "x"
	if _, err := j.follow(t.Context()); err != nil || fake.cut == 40 {
		t.Fatalf("%v, %d cuts left", err, fake.cut)
	}
	if sha256.Sum256(out.Bytes()) != sha256.Sum256(output) {
		t.Errorf("%d bytes of %d, or others", out.Len(), len(output))
	}
}

// execute runs a command as the program does.
func execute(in io.Reader, out, errs io.Writer, arguments ...string) int {
	return Execute(&struct{ Commands }{}, "", arguments, Streams{In: in, Out: out, Err: errs}, kong.Bind(Private{}))
}

func TestJobSaysHowToStartAServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	var out, errs bytes.Buffer
	code := execute(nil, &out, &errs, "run", "--env", "shell", "--server", "http://"+address, "--", "true")
	if code != CodeOurs || !strings.Contains(errs.String(), "rockpool serve") || !strings.Contains(errs.String(), "--server") {
		t.Errorf("%d %q", code, errs.String())
	}
}

func TestRunNamesWhatIsWrong(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, test := range []struct {
		arguments []string
		says      string
	}{
		{[]string{"run", "hello.py"}, "--env"},
		{[]string{"run", "--env", "python"}, "nothing to run"},
		{[]string{"run", "--env", "python", "missing.py"}, "missing.py"},
		{[]string{"run", "--env", "python", "--time-limit=-1", "--", "x"}, "0 to 86400"},
		{[]string{"run", "--env", "python", "--server", "localhost", "--", "x"}, "--server"},
	} {
		var out, errs bytes.Buffer
		if code := execute(nil, &out, &errs, test.arguments...); code == 0 || !strings.Contains(errs.String(), test.says) {
			t.Errorf("%v: %d %q", test.arguments, code, errs.String())
		}
	}
}

func TestPersist(t *testing.T) {
	refused := &client.Error{}
	refused.Extensions.Code = runtime.CodeInvalidInput
	away := &client.Error{}
	away.Extensions.Code = runtime.CodeClusterUnavailable
	broken := errors.New("connection reset")
	for _, test := range []struct {
		name     string
		errs     []error // of the attempts, the last for ever
		attempts int
		took     time.Duration
		want     error
	}{
		{"works", []error{nil}, 1, 0, nil},
		{"refused", []error{refused}, 1, 0, refused},
		{"works later", []error{broken, away, nil}, 3, 300 * time.Millisecond, nil},
		{"refused later", []error{broken, refused}, 2, 100 * time.Millisecond, refused},
		{"never works", []error{broken}, 8, 7100 * time.Millisecond, broken},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, attempts := time.Now(), 0
			err := client.Persist(context.Background(), 6*time.Second, client.Passing, func() error {
				attempts++
				return test.errs[min(attempts, len(test.errs))-1]
			})
			if !errors.Is(err, test.want) || attempts != test.attempts || time.Since(began) != test.took {
				t.Errorf("%s: %v after %d attempts and %v", test.name, err, attempts, time.Since(began))
			}
		})
	}
}
