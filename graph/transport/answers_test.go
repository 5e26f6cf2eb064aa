package transport

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/handler/extension"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/pipes"
	"github.com/rockpool/rockpool/test/wait"
)

// An answer that waits for a peer that doesn't read holds its memory until it is written, over each
// transport. If an answer doesn't fit, a query is refused before it, and a mutation's error has a code
// that says not to repeat it.
func TestUnreadAnswersHoldTheirMemory(t *testing.T) {
	const budget = largeAnswer + largeAnswer/2
	post := func(t *testing.T, b *bed, accept string) io.Closer {
		t.Helper()
		conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		const body = `{"query":"query large { x }"}`
		if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAccept: "+accept+"\r\nContent-Length: 29\r\n\r\n"+body); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	for name, ask := range map[string]func(t *testing.T, b *bed) io.Closer{
		"POST": func(t *testing.T, b *bed) io.Closer { return post(t, b, typeJSON) },
		"SSE":  func(t *testing.T, b *bed) io.Closer { return post(t, b, typeEvents) },
		"WebSocket": func(t *testing.T, b *bed) io.Closer {
			conn := b.raw(t, 4<<10)
			_, _ = conn.Write(masked(initMessage))
			_, _ = conn.Write(masked(`{"id":"1","type":"subscribe","payload":{"query":"query large { x }"}}`))
			return conn
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, all := bounded(t, clients.Bounds{Bodies: budget}, Settings{})
			unread := ask(t, b)
			held(t, all, "the answer is there", func(bytes int64) bool { return bytes >= largeAnswer-clients.FreeBody })
			response, text := b.do(t, "POST", "", `{"query":"query large { x }"}`)
			if response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, "--body-memory") || response.Header.Get("Retry-After") == "" {
				t.Errorf("a second answer: %s %.200s", response.Status, text)
			}
			response, text = b.do(t, "POST", "", `{"query":"mutation large { x }"}`)
			if response.StatusCode != http.StatusOK || !strings.Contains(text, "was carried out") {
				t.Errorf("a mutation's: %s %.200s", response.Status, text)
			}
			p := b.hello(t)
			p.send(`{"id":"1","type":"subscribe","payload":{"query":"query large { x }"}}`)
			if got := p.read(); !strings.Contains(got, `"id":"1","type":"error"`) || !strings.Contains(got, "--body-memory") {
				t.Errorf("one on a WebSocket: %.200s", got)
			}
			if name == "WebSocket" { // the writer still has it after the operation was completed
				_, _ = unread.(net.Conn).Write(masked(`{"id":"1","type":"complete"}`))
				_, _ = unread.(net.Conn).Write(masked(`{"id":"2","type":"subscribe","payload":{"query":"subscription silent { x }"}}`))
				wait.For(t, "the complete was read", func() bool { return b.open.Load() == 1 })
				if got := all.Usage().BodyBytes; got < largeAnswer-clients.FreeBody {
					t.Errorf("after its complete %d bytes are held", got)
				}
			}
			_ = unread.Close()
			held(t, all, "nothing is held", func(bytes int64) bool { return bytes == 0 })
			if response, _ := b.do(t, "POST", "", `{"query":"query large { x }"}`); response.StatusCode != http.StatusOK {
				t.Errorf("a later one: %s", response.Status)
			}
		})
	}
}

// An operation on a WebSocket counts until its answer is written.
func TestOperationsCountUntilTheirAnswerIsWritten(t *testing.T) {
	b, all := bounded(t, clients.Bounds{Operations: 3}, Settings{})
	conn := b.raw(t, 4<<10)
	_, _ = conn.Write(masked(initMessage))
	_, _ = conn.Write(masked(floodMessage)) // nobody reads it, so later messages wait
	wait.For(t, "it floods", func() bool { return b.open.Load() == 1 })
	asked := 0
	// Until the kernel's buffers are full, answers are written, and their operations count only
	// until then.
	wait.For(t, "three operations count, and a fourth is refused", func() bool {
		if all.Usage().Operations < 3 {
			asked++
			_, _ = fmt.Fprintf(conn, "%s", masked(fmt.Sprintf(`{"id":"q%d","type":"subscribe","payload":{"query":"query q { x }"}}`, asked)))
			return false
		}
		response, text := b.do(t, "POST", "", `{"query":"query q { x }"}`)
		return response.StatusCode == http.StatusTooManyRequests && strings.Contains(text, "--peer-operations")
	})
	_ = conn.Close()
	wait.For(t, "none counts", func() bool { return all.Usage().Operations == 0 })
}

// An operation takes the memory of its fields before it runs, and that of its resolvers when they
// charge it.
func TestOperationsAreChargedForTheirFields(t *testing.T) {
	all := clients.New(clients.Bounds{Bodies: 1 << 20})
	h := &reservation{Reservation: all.Reserve(context.Background(), clients.Credential{})}
	fields := 0
	settings := Settings{Fields: func(*graphql.OperationContext) int { return fields }}
	op := operation{context: &graphql.OperationContext{Stats: graphql.Stats{}}}
	if err := settings.execute(h, op); err != nil || all.Usage().BodyBytes != 0 {
		t.Errorf("without a complexity: %v, %d bytes", err, all.Usage().BodyBytes)
	}
	op.context.Stats.SetExtension("ComplexityLimit", &extension.ComplexityStats{Complexity: 50_000})
	if err := settings.execute(h, op); err != nil || all.Usage().BodyBytes != 0 {
		t.Errorf("without many fields: %v, %d bytes", err, all.Usage().BodyBytes)
	}
	fields = freeFields + 1000
	if err := settings.execute(h, op); err != nil || all.Usage().BodyBytes != 1000*fieldBytes {
		t.Errorf("%v, %d bytes", err, all.Usage().BodyBytes)
	}
	fields = freeFields + 4000
	if err := settings.execute(h, op); runtime.CodeOf(err) != runtime.CodeQuotaExceeded {
		t.Errorf("more than there is: got %v, want QUOTA_EXCEEDED", err)
	}
	h.release()
	for kind, code := range map[ast.Operation]runtime.Code{ast.Query: runtime.CodeQuotaExceeded, ast.Mutation: runtime.CodeLimitExceeded} {
		op.context.Operation = &ast.OperationDefinition{Operation: kind}
		ctx := graphql.WithOperationContext(h.charging(t.Context()), op.context)
		for range 16 {
			if err := Charge(ctx, 2<<10); err != nil {
				t.Fatal(err)
			}
		}
		if got := all.Usage().BodyBytes; got != 32<<10-clients.FreeBody {
			t.Errorf("%d bytes are charged", got)
		}
		if err := Charge(ctx, 1<<20); runtime.CodeOf(err) != code {
			t.Errorf("more than there is for a %s: %v", kind, err)
		}
		if err := h.answered(kind, make([]byte, 20<<10)); err != nil || all.Usage().BodyBytes != 20<<10-clients.FreeBody {
			t.Errorf("with an answer of 20 KiB %d bytes are held: %v", all.Usage().BodyBytes, err)
		}
		h.release()
		if err := Charge(ctx, 1<<10); err == nil || all.Usage().BodyBytes != 0 {
			t.Errorf("after its end: %v, %d bytes", err, all.Usage().BodyBytes)
		}
	}
	if err := Charge(context.Background(), 1<<30); err != nil || all.Usage().BodyBytes != 0 {
		t.Errorf("%v, %d bytes", err, all.Usage().BodyBytes)
	}
}

// An answer that fits in the memory of its operation is never refused. A longer one takes only the
// difference.
func TestAnswersReuseTheMemoryOfTheirOperation(t *testing.T) {
	all := clients.New(clients.Bounds{Bodies: 1 << 20})
	h := &reservation{Reservation: all.Reserve(context.Background(), clients.Credential{})}
	ctx := h.charging(t.Context())
	if err := Charge(ctx, 1<<20+clients.FreeBody); err != nil {
		t.Fatal(err)
	}
	if err := h.answered(ast.Query, make([]byte, 500<<10)); err != nil || all.Usage().BodyBytes != 500<<10-clients.FreeBody {
		t.Errorf("with an answer of 500 KiB %d bytes are held: %v", all.Usage().BodyBytes, err)
	}
	h.release()
	ctx = h.charging(t.Context())
	if err := Charge(ctx, 300<<10+clients.FreeBody); err != nil {
		t.Fatal(err)
	}
	if err := h.answered(ast.Query, make([]byte, 2<<20)); runtime.CodeOf(err) != runtime.CodeQuotaExceeded || all.Usage().BodyBytes != 0 {
		t.Errorf("an answer of 2 MiB: %v, %d bytes", err, all.Usage().BodyBytes)
	}
	if err := h.answered(ast.Query, make([]byte, 1<<20)); err != nil || all.Usage().BodyBytes != 1<<20-clients.FreeBody {
		t.Errorf("with an answer of 1 MiB %d bytes are held: %v", all.Usage().BodyBytes, err)
	}
	h.release()
	if all.Usage().BodyBytes != 0 {
		t.Errorf("%d bytes are held at the end, want 0", all.Usage().BodyBytes)
	}
}

// A document takes the memory of its tokens on every transport, until the operation has ended.
func TestDocumentsAreChargedForTheirTokens(t *testing.T) {
	all := clients.New(clients.Bounds{Bodies: 1 << 20})
	h := &reservation{Reservation: all.Reserve(context.Background(), clients.Credential{})}
	document := "{ x(a: [" + strings.Repeat("1 ", 1000) + "]) }" // 1009 tokens
	body, _ := json.Marshal(map[string]string{"query": document})
	const want = (1009 - freeTokens) * tokenBytes
	if _, err := h.decodeParams(t.Context(), body); err != nil || all.Usage().BodyBytes != want {
		t.Errorf("by POST: %v, %d bytes of %d", err, all.Usage().BodyBytes, want)
	}
	h.release()
	request := httptest.NewRequest(http.MethodGet, "/graphql?query="+url.QueryEscape(document), nil)
	if _, err := addressParams(request, h); err != nil || all.Usage().BodyBytes != want {
		t.Errorf("by GET: %v, %d bytes of %d", err, all.Usage().BodyBytes, want)
	}
	h.release()
	body, _ = json.Marshal(map[string]string{"query": strings.Repeat("1 ", 5000)})
	if _, err := h.decodeParams(t.Context(), body); runtime.CodeOf(err) != runtime.CodeQuotaExceeded {
		t.Errorf("more than there is: got %v, want QUOTA_EXCEEDED", err)
	}
}

// A block string is split at its lines, so a document takes memory for these before its tokens are read.
func TestDocumentsAreChargedForTheirLines(t *testing.T) {
	all := clients.New(clients.Bounds{Bodies: 1 << 20})
	h := &reservation{Reservation: all.Reserve(context.Background(), clients.Credential{})}
	block := func(lines string) string { return `{ x(a: """` + lines + `""") }` }
	if err := h.parse(block(strings.Repeat("\n", freeLines))); err != nil || all.Usage().BodyBytes != 0 {
		t.Errorf("%d lines take %d bytes, want 0: %v", freeLines, all.Usage().BodyBytes, err)
	}
	const want = 10_000 * lineBytes
	if err := h.parse(block(strings.Repeat("\n", freeLines) + strings.Repeat("\r", 10_000))); err != nil || all.Usage().BodyBytes != want {
		t.Errorf("10,000 lines more take %d bytes, want %d: %v", all.Usage().BodyBytes, want, err)
	}
	if err := h.parse(block(strings.Repeat("\n", 1<<20/lineBytes))); runtime.CodeOf(err) != runtime.CodeQuotaExceeded {
		t.Errorf("more than there is: got %v, want QUOTA_EXCEEDED", err)
	}
}

// A subscription takes the memory of each answer while it waits, and of the buffer of its largest
// answer.
func TestSubscriptionsAreChargedForTheirAnswers(t *testing.T) {
	all := clients.New(clients.Bounds{Bodies: 1 << 20})
	h := &reservation{Reservation: all.Reserve(context.Background(), clients.Credential{})}
	ctx := graphql.WithOperationContext(h.charging(t.Context()), &graphql.OperationContext{Operation: &ast.OperationDefinition{Operation: ast.Subscription}})
	if err := h.growWork(1 << 10); err != nil { // its fields
		t.Fatal(err)
	}
	for _, test := range []struct{ answer, buffer int64 }{{30 << 10, 0}, {132 << 10, 200 << 10}, {100, 200 << 10}, {232 << 10, 400 << 10}} {
		answer := make([]byte, test.answer)
		want := 1<<10 + test.buffer + max(test.answer-DefaultBudget, 0) + 20<<10
		if err := errors.Join(Charge(ctx, 20<<10+clients.FreeBody), h.holdBuffer(answer), h.holdAnswer(answer)); err != nil || all.Usage().BodyBytes != want {
			t.Errorf("with an answer of %d bytes %d are held, not %d: %v", test.answer, all.Usage().BodyBytes, want, err)
		}
		if err := Charge(ctx, 2<<20); runtime.CodeOf(err) != runtime.CodeQuotaExceeded {
			t.Errorf("more than there is: got %v, want QUOTA_EXCEEDED", err)
		}
		if h.releaseAnswer(); all.Usage().BodyBytes != 1<<10+test.buffer {
			t.Errorf("after an answer of %d bytes %d are held, not %d", test.answer, all.Usage().BodyBytes, 1<<10+test.buffer)
		}
	}
	h.release()
	settings := Settings{}.WithDefaults()
	h.charging(t.Context())
	large := streamFunc(func() (Message, error) { return Message{Payload: make([]byte, 2<<20)}, nil })
	if err := settings.pump(t.Context(), large, newSendQueue().queue("", settings.Budget), h, false); runtime.CodeOf(err) != runtime.CodeQuotaExceeded {
		t.Errorf("more than there is: got %v, want QUOTA_EXCEEDED", err)
	}
}

// A subscription gives back the memory of each answer before the next one. Otherwise one with many
// answers would use up its memory.
func TestSubscriptionsReleaseEachAnswer(t *testing.T) {
	all := clients.New(clients.Bounds{Bodies: 1 << 20})
	h := &reservation{Reservation: all.Reserve(context.Background(), clients.Credential{})}
	settings := Settings{}.WithDefaults()
	ctx := graphql.WithOperationContext(h.charging(t.Context()), &graphql.OperationContext{Operation: &ast.OperationDefinition{Operation: ast.Subscription}})
	left := 10
	stream := streamFunc(func() (Message, error) {
		if left--; left < 0 {
			return Message{}, io.EOF
		}
		return Message{Payload: []byte("{}")}, Charge(ctx, 700<<10)
	})
	if err := settings.pump(ctx, stream, newSendQueue().queue("", settings.Budget), h, false); err != nil {
		t.Error(err)
	}
	h.release()
	if all.Usage().BodyBytes != 0 {
		t.Errorf("%d bytes are held at the end, want 0", all.Usage().BodyBytes)
	}
}

// streamFunc is a stream.
type streamFunc func() (Message, error)

func (f streamFunc) Next(context.Context) (Message, error) { return f() }
func (streamFunc) Close()                                  {}

// A message that arrives slowly holds its memory for clients.MaxBodyTime at most.
func TestSlowMessagesEndTheWebSocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settings := Settings{Present: func(_ context.Context, err error) *gqlerror.Error { return gqlerror.Wrap(err) }}.WithDefaults()
		listener := make(pipes.Listener)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { settings.Serve(w, r, stub{}) })}
		served := make(chan struct{})
		go func() { defer close(served); _ = server.Serve(listener) }()
		client, conn := net.Pipe()
		listener <- conn
		if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
			"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: "+Subprotocol+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(client)
		if _, err := http.ReadResponse(in, nil); err != nil {
			t.Fatal(err)
		}
		ended := make(chan time.Time, 1)
		go func() {
			_, _ = io.Copy(io.Discard, in)
			ended <- time.Now()
		}()
		_, _ = client.Write(masked(initMessage))
		message := masked(`{"id":"1","type":"subscribe","payload":{"query":"` + strings.Repeat(" ", 4000) + `"}}`)
		const head = 8 // of the frame
		_, _ = client.Write(message[:head])
		began := time.Now()
		for i := head; i < len(message); i++ {
			if _, err := client.Write(message[i : i+1]); err != nil {
				break
			}
			time.Sleep(time.Second)
		}
		if took := (<-ended).Sub(began); took != clients.MaxBodyTime {
			t.Errorf("it ended after %v, want %v", took, clients.MaxBodyTime)
		}
		close(listener)
		_ = server.Close()
		<-served
		_ = client.Close()
		synctest.Wait()
	})
}
