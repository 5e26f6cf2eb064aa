package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/coder/websocket"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/parser"
	"go.uber.org/goleak"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/test/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// largeAnswer is more than the kernel buffers for a peer that doesn't read.
const largeAnswer = 24 << 20

// stub is an executor that accepts any document, and answers with its name. The answer to large has
// largeAnswer bytes.
type stub struct{}

func (stub) CreateOperationContext(_ context.Context, params *graphql.RawParams) (*graphql.OperationContext, gqlerror.List) {
	doc, err := parser.ParseQuery(&ast.Source{Input: params.Query})
	if err != nil {
		return &graphql.OperationContext{}, gqlerror.List{gqlerror.Wrap(err)}
	}
	return &graphql.OperationContext{Variables: params.Variables, Doc: doc, Operation: doc.Operations[0], RecoverFunc: graphql.DefaultRecover}, nil
}

func (stub) DispatchOperation(ctx context.Context, op *graphql.OperationContext) (graphql.ResponseHandler, context.Context) {
	if op.Operation.Name == "panics" {
		return func(context.Context) *graphql.Response { panic("stub") }, ctx
	}
	if upload, ok := op.Variables["file"].(Upload); ok {
		return graphql.OneShot(consume(upload)), ctx
	}
	if op.Operation.Name == "large" {
		return graphql.OneShot(&graphql.Response{Data: []byte(`"` + strings.Repeat("x", largeAnswer) + `"`)}), ctx
	}
	return graphql.OneShot(&graphql.Response{Data: []byte(`{"name":"` + op.Operation.Name + `"}`)}), ctx
}

// consume answers with the size of a file, or with the error of reading it.
func consume(upload Upload) *graphql.Response {
	content, err := upload.Open()
	if err != nil {
		return &graphql.Response{Errors: gqlerror.List{gqlerror.Wrap(err)}}
	}
	n, err := io.Copy(io.Discard, content)
	if err != nil {
		return &graphql.Response{Errors: gqlerror.List{gqlerror.Wrap(err)}}
	}
	return &graphql.Response{Data: fmt.Appendf(nil, `{"size":%d}`, n)}
}

func (stub) DispatchError(_ context.Context, list gqlerror.List) *graphql.Response {
	return &graphql.Response{Errors: list}
}

// printer is a stream whose messages have size bytes, and their number as cursor. With size 0 it is
// silent.
type printer struct {
	size, most int
	number     int
	open       *atomic.Int64
}

func (p *printer) Next(ctx context.Context) (Message, error) {
	if p.size == 0 {
		<-ctx.Done()
		return Message{}, context.Cause(ctx)
	}
	if p.most > 0 && p.number == p.most {
		return Message{}, io.EOF
	}
	if ctx.Err() != nil {
		return Message{}, ctx.Err()
	}
	p.number++
	cursor, _ := json.Marshal(p.number)
	payload := append(append([]byte(`{"data":{"n":`), cursor...), `,"text":"`...)
	if p.size > len(payload) {
		payload = append(payload, filler[:p.size-len(payload)]...)
	}
	return Message{Payload: append(payload, `"}}`...), Cursor: string(cursor)}, nil
}

var filler = bytes.Repeat([]byte("x"), 64<<10)

func (p *printer) Close() { p.open.Add(-1) }

// A bed serves all transports with the stub. Subscriptions have names for what they print: silent,
// flood, three.
type bed struct {
	url   string
	begun atomic.Int64 // started streams
	open  atomic.Int64 // running streams
}

func newBed(t testing.TB, settings Settings, listeners ...net.Listener) *bed {
	t.Helper()
	b := &bed{}
	settings.Present = func(_ context.Context, err error) *gqlerror.Error {
		var gql *gqlerror.Error
		if errors.As(err, &gql) {
			return gql
		}
		return gqlerror.Wrap(err)
	}
	settings.Recover = func(context.Context, any) error { return errors.New("recovered") }
	settings.Source = func(_ context.Context, op *graphql.OperationContext, after string) (Stream, error) {
		p := &printer{open: &b.open}
		if after != "" {
			_ = json.Unmarshal([]byte(after), &p.number)
		}
		switch op.Operation.Name {
		case "refused":
			return nil, errors.New("no such execution")
		case "flood":
			p.size = 32 << 10
		case "three":
			p.size, p.most = 10, 3
		}
		b.open.Add(1)
		b.begun.Add(1)
		return p, nil
	}
	settings = settings.WithDefaults()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { settings.Serve(w, r, stub{}) }))
	ctx, stop := context.WithCancel(context.Background())
	server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	server.Config.ConnContext = clients.ConnContext
	if len(listeners) > 0 {
		_ = server.Listener.Close()
		server.Listener = listeners[0]
	}
	server.Start()
	b.url = server.URL
	t.Cleanup(func() {
		stop()
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return b
}

// idle waits until no subscription is open.
func (b *bed) idle(t testing.TB) {
	t.Helper()
	wait.For(t, "no subscription is open", func() bool { return b.open.Load() == 0 })
}

// A peer is a client that sends and reads single messages of a WebSocket.
type peer struct {
	t    testing.TB
	conn *websocket.Conn
}

func (b *bed) dial(t testing.TB) peer {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(b.url, "http"), &websocket.DialOptions{Subprotocols: []string{Subprotocol}})
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadLimit(1 << 20)
	t.Cleanup(func() { conn.CloseNow() })
	return peer{t, conn}
}

func (b *bed) hello(t testing.TB) peer {
	t.Helper()
	p := b.dial(t)
	p.send(`{"type":"connection_init","payload":{}}`)
	p.want(`{"type":"connection_ack"}`)
	return p
}

func (p peer) send(text string) {
	p.t.Helper()
	if err := p.conn.Write(p.t.Context(), websocket.MessageText, []byte(text)); err != nil {
		p.t.Fatal(err)
	}
}

func (p peer) subscribe(id, name string) {
	p.t.Helper()
	p.send(`{"id":"` + id + `","type":"subscribe","payload":{"query":"subscription ` + name + ` { x }"}}`)
}

func (p peer) read() string {
	p.t.Helper()
	_, text, err := p.conn.Read(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

func (p peer) want(text string) {
	p.t.Helper()
	if got := p.read(); got != text {
		p.t.Fatalf("got %s instead of %s", got, text)
	}
}

// wantClose reads until the connection is closed, and checks the code.
func (p peer) wantClose(code websocket.StatusCode, reason string) {
	p.t.Helper()
	for {
		_, _, err := p.conn.Read(p.t.Context())
		if err == nil {
			continue
		}
		var closed websocket.CloseError
		if !errors.As(err, &closed) || closed.Code != code || !strings.Contains(closed.Reason, reason) {
			p.t.Fatalf("closed with %v instead of %d %s", err, code, reason)
		}
		return
	}
}
