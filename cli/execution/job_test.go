package execution

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/rockpool/rockpool/client"
)

// A fakeServer serves a job's requests and breaks every connection that it can.
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

// TestJobSurvivesBrokenConnections breaks every response and stream many times. The output is still
// complete, and nothing was done twice under another key.
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
	j := &Job{Follower: Follower{Client: client.New(server.URL), Out: &out, Err: &errs},
		Environment: "python", Command: []string{"x"}, Files: []client.FileInput{{Path: "a", Base64: []byte("b")}}}
	fake.cut = 3 // of the answers, whose pauses double
	ended, err := j.Run(t.Context())
	if err != nil || ended.ExitCode == nil || *ended.ExitCode != 42 || !fake.released {
		t.Fatalf("%+v, %v, released %v", ended, err, fake.released)
	}
	out.Reset()
	fake.cut = 40 // of the streams
	j.Execution = "x"
	if _, err := j.Follow(t.Context()); err != nil || fake.cut == 40 {
		t.Fatalf("%v, %d cuts left", err, fake.cut)
	}
	if sha256.Sum256(out.Bytes()) != sha256.Sum256(output) {
		t.Errorf("%d bytes of %d, or others", out.Len(), len(output))
	}
}

// TestTooLargeUploadsAreNamed: the server's message has only the limit of a body.
func TestTooLargeUploadsAreNamed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		_, _ = io.WriteString(w, `{"errors": [{"message": "the body must be at most 7 bytes", "extensions": {"code": "LIMIT_EXCEEDED"}}]}`)
	}))
	defer server.Close()
	j := &Job{Follower: Follower{Client: client.New(server.URL)}, Files: []client.FileInput{{Path: "main.py", Base64: []byte("x")}, {Path: "data/big.bin", Base64: make([]byte, 9000)}, {Path: "c"}}}
	err := j.upload(t.Context())
	for _, part := range []string{"data/big.bin", "9000", "7 bytes", "rockpool runner cp"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v doesn't say %q", err, part)
		}
	}
}
