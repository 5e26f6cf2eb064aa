package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/wait"
)

// An assault is a request that costs its sender little and could cost the server much.
type assault struct {
	name   string
	body   func() io.Reader
	length int64  // the request's Content-Length; 0 means the body's, -1 means none
	code   string // the code of its refusal
	cut    bool   // the server may cut it off while it is being sent, before its answer is read
	form   bool   // multipart/form-data, which needs POST
}

// operation returns the body of an operation with a query and variables, without changing them.
func operation(query, variables string) func() io.Reader {
	text, _ := json.Marshal(query)
	return plain(`{"query": ` + string(text) + `, "variables": ` + variables + `}`)
}

func plain(text string) func() io.Reader {
	return func() io.Reader { return strings.NewReader(text) }
}

func numbered(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

func attacks() []assault {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	doubling := "{ ...f0 }" + numbered(40, " fragment f%[1]d on Query { ...g%[1]d ...g%[1]d }")
	for i := range 40 {
		doubling += fmt.Sprintf(" fragment g%d on Query { ...f%d }", i, i+1)
	}
	doubling += " fragment f40 on Query { version }"
	big := 31 << 20 // within the limit of a body
	return []assault{
		{name: "300 aliases of 1,000 items", body: operation("{ "+numbered(300, "a%d: runners(first: 1000) { nodes { id state } } ")+"}", "{}"), code: "LIMIT_EXCEEDED"},
		{name: "50 aliases of 1,000 items by a variable", body: operation("query($n: Int) { "+numbered(50, "a%d: runners(first: $n) { nodes { id state } } ")+"}", `{"n": 1000}`), code: "LIMIT_EXCEEDED"},
		{name: "50 aliases of 1,000 items by a variable's default", body: operation("query($n: Int = 1000) { "+numbered(50, "a%d: executions(first: $n) { nodes { id state } } ")+"}", "{}"), code: "LIMIT_EXCEEDED"},
		{name: "20,000 bad fields", body: operation("{ "+numbered(20_000, "bad%d ")+"}", "{}"), code: "LIMIT_EXCEEDED"},
		{name: "30,000 directives", body: operation("{ version "+strings.Repeat("@a ", 30_000)+"}", "{}"), code: "LIMIT_EXCEEDED"},
		{name: "fragments that double", body: operation(doubling, "{}"), code: "LIMIT_EXCEEDED"},
		{name: "a document of 10,000 levels", body: operation(strings.Repeat("{ a ", 10_000)+strings.Repeat("}", 10_000), "{}"), code: "LIMIT_EXCEEDED"},
		{name: "JSON of depth 10,000", body: operation("{ version }", `{"a": `+nested(10_000)+`}`), code: "LIMIT_EXCEEDED"},
		{name: "31 MB of brackets", body: plain(strings.Repeat("[", big)), code: "LIMIT_EXCEEDED"},
		{name: "15 million values", body: operation("{ version }", `{"a": [`+strings.Repeat("1,", big/2)+`1]}`), code: "LIMIT_EXCEEDED"},
		{name: "a string of 31 MB", body: operation(`query($id: ID!) { runner(id: $id) { nope } }`, `{"id": "`+strings.Repeat("x", big)+`"}`), code: "INVALID_INPUT"},
		{name: "a string of 31 MB in the document", body: operation(`{ runner(id: "`+strings.Repeat("x", big)+`") { nope } }`, "{}"), code: "INVALID_INPUT"},
		{name: "a name of 31 MB", body: operation("{ "+strings.Repeat("x", big)+" }", "{}"), code: "LIMIT_EXCEEDED"},
		{name: "31 MB of nothing", body: operation(strings.Repeat(" ", big), "{}"), code: "INVALID_INPUT"},
		{name: "invalid UTF-8 in the document", body: plain("{\"query\": \"{ version # \xc3\x28 \\n }\"}"), code: "INVALID_INPUT"},
		{name: "invalid UTF-8 in a variable", body: plain("{\"query\": \"{ version }\", \"variables\": {\"a\": \"\xff\"}}"), code: "INVALID_INPUT"},
		{name: "a body of 200 MB", body: spaces, length: 200 << 20, code: "LIMIT_EXCEEDED", cut: true},
		{name: "a body of 200 MB that doesn't tell its length", body: spaces, length: -1, code: "LIMIT_EXCEEDED", cut: true},
	}
}

func spaces() io.Reader { return io.LimitReader(blank{}, 200<<20) }

type blank struct{}

func (blank) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// TestE2EWrongDocumentsAreRefusedEarly sends a server of its own documents that it must refuse,
// over every transport, and measures its memory. All of them, many of them concurrent, take no more
// memory than a few requests of the largest size.
func TestE2EWrongDocumentsAreRefusedEarly(t *testing.T) {
	t.Parallel()
	p := bed.ServeBinary(t, bed.DataDir(t))
	before := mostMemory(t, p.Cmd.Process.Pid)
	transports := map[string]func(context.Context, string, assault) (string, error){"POST": overPOST, "server-sent events": overEvents, "WebSocket": overWebSocket}
	wrong := append(attacks(), formAttacks()...)
	for _, attack := range wrong {
		for transport, send := range transports {
			if attack.form && transport != "POST" {
				continue
			}
			ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
			code, err := send(ctx, p.URL(), attack)
			if err != nil || code != attack.code {
				t.Errorf("%s, %s: %q, %v; want %s", attack.name, transport, code, err, attack.code)
			}
			cancel()
		}
	}
	one := mostMemory(t, p.Cmd.Process.Pid)
	t.Logf("%d MiB before, at most %d MiB one after the other", before>>20, one>>20)
	if one-before > 400<<20 { // garbage counts too
		t.Errorf("one after the other they took %d MiB", (one-before)>>20)
	}
	var all sync.WaitGroup
	for _, attack := range wrong {
		all.Go(func() {
			code, err := overPOST(t.Context(), p.URL(), attack)
			if attack.form && (errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)) {
				return // the server had answered and closed before this was sent
			}
			if err != nil || code != attack.code {
				t.Errorf("%s, among others: %q, %v", attack.name, code, err)
			}
		})
	}
	all.Wait()
	together := mostMemory(t, p.Cmd.Process.Pid)
	t.Logf("at most %d MiB all at once", together>>20)
	if together-before > 1200<<20 { // eight bodies of the largest size, each up to five times
		t.Errorf("all concurrent assaults took %d MiB", (together-before)>>20)
	}
	p.Call(t, "{ version }", nil, nil)
	p.End(t, syscall.SIGTERM, false)
	if log := p.Stderr.String(); strings.Contains(log, "request failed") || strings.Contains(log, "panic") {
		t.Errorf("what clients did wrong was logged as the server's failure: %.2000s", log)
	}
}

// mostMemory returns the peak of a process's memory, in bytes.
func mostMemory(t testing.TB, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	kilobytes, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}

// The next functions return the code of the answer to an assault over one transport. An answer must
// be short, and come before the deadline.
func overPOST(ctx context.Context, url string, a assault) (string, error) {
	text, err := post(ctx, url, a, "application/json")
	if err != nil {
		return "", err
	}
	return refusalCode(text)
}

func overEvents(ctx context.Context, url string, a assault) (string, error) {
	text, err := post(ctx, url, a, "text/event-stream")
	if err != nil {
		return "", err
	}
	if _, data, events := bytes.Cut(text, []byte("data: ")); events {
		text, _, _ = bytes.Cut(data, []byte("\n"))
	}
	return refusalCode(text)
}

const longestRefusal = 32 << 10

func post(ctx context.Context, url string, a assault, accept string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, a.body())
	if err != nil {
		return nil, err
	}
	if a.length != 0 {
		request.ContentLength = a.length
	}
	request.Header.Set("Content-Type", "application/json")
	if a.form {
		request.Header.Set("Content-Type", "multipart/form-data; boundary=cut")
		request.Header.Set("GraphQL-Require-Preflight", "1")
	}
	request.Header.Set("Accept", accept)
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if a.cut && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)) {
		return fmt.Appendf(nil, `{"errors": [{"extensions": {"code": %q}}]}`, a.code), nil
	}
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, longestRefusal))
	if len(text) == longestRefusal {
		return nil, errors.New("the answer is too long")
	}
	return text, err
}

func refusalCode(text []byte) (string, error) {
	var answer struct{ Errors []client.Error }
	if err := json.Unmarshal(text, &answer); err != nil || len(answer.Errors) == 0 {
		return "", fmt.Errorf("no refusal: %.200s", text)
	}
	return string(answer.Errors[0].Extensions.Code), nil
}

// overWebSocket subscribes. A message that isn't an operation closes the connection, with a code of
// the protocol instead of an error code.
func overWebSocket(ctx context.Context, url string, a assault) (string, error) {
	conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(url, "http"), &websocket.DialOptions{Subprotocols: []string{"graphql-transport-ws"}})
	if err != nil {
		return "", err
	}
	defer conn.CloseNow()
	conn.SetReadLimit(longestRefusal)
	if err := wsjson.Write(ctx, conn, client.Frame{Type: "connection_init"}); err != nil {
		return "", err
	}
	if err := wsjson.Read(ctx, conn, &client.Frame{}); err != nil {
		return "", err
	}
	w, err := conn.Writer(ctx, websocket.MessageText)
	if err != nil {
		return "", err
	}
	// The server may close while this still writes; the read then returns why.
	_, _ = io.Copy(w, io.MultiReader(strings.NewReader(`{"id": "1", "type": "subscribe", "payload": `), a.body(), strings.NewReader("}")))
	_ = w.Close()
	var f client.Frame
	for err == nil && f.Type != "error" {
		err = wsjson.Read(ctx, conn, &f)
	}
	switch status := websocket.CloseStatus(err); {
	case err == nil:
		return refusalCode([]byte(`{"errors": ` + string(f.Payload) + `}`))
	case status == 4400 || status == websocket.StatusMessageTooBig:
		return a.code, nil
	}
	return "", err
}
