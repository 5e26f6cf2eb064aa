package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/coder/websocket"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/runtime"
)

// Subprotocol is the WebSockets' subprotocol: that of npm graphql-ws.
const Subprotocol = "graphql-transport-ws"

// The codes with which the subprotocol closes a WebSocket.
const (
	closeBadRequest   websocket.StatusCode = 4400
	closeUnauthorized websocket.StatusCode = 4401
	closeForbidden    websocket.StatusCode = 4403
	closeInitTimeout  websocket.StatusCode = 4408
	closeDuplicate    websocket.StatusCode = 4409
	closeTooManyInits websocket.StatusCode = 4429
	closeTryLater                          = websocket.StatusTryAgainLater
	closeGoingAway                         = websocket.StatusGoingAway
	closeAbnormally                        = websocket.StatusCode(0) // without a close frame, which nobody would get
	maxReason                              = 120                     // bytes, of 123 that a close frame has
	initLimit                              = 64 << 10                // bytes of a message before the acknowledgement
	closeTime                              = time.Second             // for the peer's response to a close
)

// IsWebSocket reports whether a request opens a WebSocket.
func IsWebSocket(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// serveWebSocket serves a WebSocket until it ends. It carries operations of all three kinds, up to
// MaxOperations concurrently, and doesn't use compression. When the request's context ends, it ends
// with 1001.
func (s Settings) serveWebSocket(w http.ResponseWriter, r *http.Request, exec graphql.GraphExecutor) {
	if !hasToken(r.Header.Values("Sec-WebSocket-Protocol"), Subprotocol) {
		s.refuse(w, r, http.StatusBadRequest, runtime.Errorf(runtime.CodeInvalidInput,
			"the WebSocket must ask for the subprotocol %s", Subprotocol))
		return
	}
	c := &connection{Settings: s, exec: exec, header: r.Header, out: newSendQueue(), subscribers: map[string]*subscriber{}, inits: make(chan struct{}),
		slots: make(chan struct{}, 2*s.MaxOperations)}
	hijack := &clients.Hijacker{ResponseWriter: w, Patience: s.Patience}
	ws, err := websocket.Accept(hijack, r, &websocket.AcceptOptions{
		Subprotocols:    []string{Subprotocol},
		CompressionMode: websocket.CompressionDisabled,
		// Origins are checked before.
		InsecureSkipVerify: true,
		OnPingReceived: func(_ context.Context, payload []byte) bool {
			c.out.urgent(clients.Frame(clients.OpPong, payload)) // it waits for a message that is being written
			return false
		},
	})
	if err != nil {
		return // Accept has responded
	}
	ws.SetReadLimit(initLimit)
	c.ws, c.conn = ws, hijack.Conn
	c.refusals = c.out.queue("", c.Budget)
	defer c.Peers.Keep(r.Context())()
	c.serve(r.Context())
}

// hasToken reports whether the comma-separated values of a header have a token.
func hasToken(values []string, want string) bool {
	for _, value := range values {
		for token := range strings.SplitSeq(value, ",") {
			if strings.TrimSpace(token) == want {
				return true
			}
		}
	}
	return false
}

// A connection is one WebSocket. It has one goroutine that reads, one that writes, and one for each
// operation.
type connection struct {
	Settings
	exec    graphql.GraphExecutor
	header  http.Header
	ws      *websocket.Conn
	conn    *clients.GuardedConn
	out     *sendQueue
	running sync.WaitGroup  // operations, which the reader starts
	inits   chan struct{}   // closed by connection_init
	acting  context.Context // the reader's: the context of operations; nil before the acknowledgement
	slots   chan struct{}   // one for each operation that isn't wholly written

	end      context.CancelCauseFunc // ends the connection
	refusals *opQueue                // of operations that didn't begin

	mu          sync.Mutex // guards subscribers
	subscribers map[string]*subscriber
}

// A closeReason is the reason why a connection ends, with the close frame's code.
type closeReason struct {
	code   websocket.StatusCode
	reason string
}

func (c closeReason) Error() string { return c.reason }

// serve runs the connection until it ends. It starts the reader, the writer and keep, and returns
// when they and all operations have ended. The first of them to end gives the reason.
func (c *connection) serve(parent context.Context) {
	ctx, end := context.WithCancelCause(parent)
	defer end(nil)
	c.end = end
	var others sync.WaitGroup
	others.Go(func() { c.write(ctx, end) })
	others.Go(func() { end(c.keep(ctx)) })
	// The reader ends only when the peer does.
	read := make(chan struct{})
	go func() {
		defer close(read)
		end(c.read(ctx, end))
	}()
	<-ctx.Done()
	// The writer may wait for a peer that reads nothing: limit that.
	c.conn.LimitWrites(closeTime)
	others.Wait()
	c.sendClose(context.Cause(ctx), read)
	_ = c.ws.CloseNow()
	<-read
	// The reader starts operations, so it ends before they are waited for.
	c.running.Wait()
}

// sendClose sends the close frame, and waits closeTime for the peer's response.
func (c *connection) sendClose(cause error, read <-chan struct{}) {
	why := closeReason{closeGoingAway, "the server is stopping"}
	errors.As(cause, &why)
	if why.code == closeAbnormally {
		return
	}
	reason := strings.ToValidUTF8(why.reason[:min(len(why.reason), maxReason)], "")
	payload := append([]byte{byte(why.code >> 8), byte(why.code)}, reason...)
	if c.conn.WriteLast(clients.Frame(clients.OpClose, payload)) != nil {
		return
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(closeTime))
	<-read
}

// read processes messages until there are no more, and returns the reason. After the end of ctx, or
// after a mistake of the peer, it drops them: an unread message would make the kernel discard the
// close frame.
func (c *connection) read(ctx context.Context, end context.CancelCauseFunc) error {
	reading := context.WithoutCancel(ctx) // otherwise the library would close immediately
	left := closeReason{code: closeAbnormally, reason: "the peer left"}
	late := time.AfterFunc(clients.MaxBodyTime, func() { end(left) }) // runs while a message arrives
	defer late.Stop()
	for {
		late.Stop()
		kind, reader, err := c.ws.Reader(reading)
		if err != nil {
			return left
		}
		if ctx.Err() != nil || kind != websocket.MessageText {
			end(closeReason{closeBadRequest, "messages must be text"})
			if _, err := io.Copy(io.Discard, reader); err != nil {
				return left
			}
			continue
		}
		h := c.reserve(c.operating(ctx))
		late.Reset(clients.MaxBodyTime)
		text, err := h.Read(reader, -1, 2*c.MaxBody) // the library ends it at MaxBody, with the reason
		refused := runtime.CodeOf(err) == runtime.CodeQuotaExceeded
		switch {
		case err == nil:
			late.Stop()
			err = c.handle(ctx, text, h)
		case refused:
			h.release()
			err = c.refuseMessage(idOf(text), err)
		default:
			h.release()
			return left // the library reported it if the message was too long
		}
		if err != nil {
			end(err)
		}
		if refused {
			if _, err := io.Copy(io.Discard, reader); err != nil {
				return left
			}
		}
	}
}

// A clientMessage is one of the subprotocol's messages.
type clientMessage struct {
	ID      *string         `json:"id"`
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload"`
}

// idOf returns the id in the beginning of a message, or "".
func idOf(begun []byte) string {
	tokens := json.NewDecoder(bytes.NewReader(begun[:min(len(begun), clients.FreeBody)]))
	if start, err := tokens.Token(); err != nil || start != json.Delim('{') {
		return ""
	}
	for tokens.More() {
		name, err := tokens.Token()
		if err != nil {
			return ""
		}
		value, err := tokens.Token()
		if text, isText := value.(string); err == nil && isText && name == "id" {
			return text
		} else if err != nil || !isText {
			return ""
		}
	}
	return ""
}

// handle processes a message. Afterwards h isn't used.
func (c *connection) handle(ctx context.Context, text []byte, h *reservation) error {
	defer h.release()
	if ctx.Err() != nil {
		return nil
	}
	var m clientMessage
	if err := h.Turn(ctx, len(text), func() error { return decode(text, &m) }); err != nil {
		return closeReason{closeBadRequest, "invalid message: " + err.Error()}
	}
	switch m.Type {
	case "connection_init":
		return c.init(ctx, m, h)
	case "ping":
		c.out.urgent(textFrame(`{"type":"pong"}`))
	case "pong":
	case "subscribe":
		return c.subscribe(c.operating(ctx), m, h, nil)
	case "complete":
		if m.ID == nil {
			return closeReason{closeBadRequest, "invalid message: complete has no id"}
		}
		c.complete(*m.ID)
	default:
		return closeReason{closeBadRequest, "invalid message: its type is none of the protocol's"}
	}
	return nil
}

// operating returns the context in which operations run.
func (c *connection) operating(ctx context.Context) context.Context {
	if c.acting != nil {
		return c.acting
	}
	return ctx
}

// init processes connection_init: it authenticates the WebSocket, and acknowledges.
func (c *connection) init(ctx context.Context, m clientMessage, h *reservation) error {
	if c.acting != nil {
		return closeReason{closeTooManyInits, "Too many initialisation requests"}
	}
	if err := h.Expand(m.Payload); err != nil { // handle has checked it
		return closeReason{closeTryLater, err.Error()}
	}
	var payload map[string]any
	if m.Payload != nil && json.Unmarshal(m.Payload, &payload) != nil {
		return closeReason{closeBadRequest, "invalid message: the payload of connection_init must be an object"}
	}
	c.acting = ctx
	if c.Admit != nil {
		acting, refusal := c.Admit(ctx, payload)
		if refusal != "" {
			return closeReason{closeForbidden, refusal}
		}
		c.acting = acting
		context.AfterFunc(acting, func() {
			if cause := callerEnded(acting); cause != nil {
				c.end(closeReason{closeForbidden, cause.Error()})
			}
		})
	}
	close(c.inits)
	// Until now, initLimit bounded messages.
	c.ws.SetReadLimit(c.MaxBody)
	c.out.urgent(textFrame(`{"type":"connection_ack"}`))
	return nil
}

// keep returns when the peer has vanished, or hasn't sent connection_init in time.
func (c *connection) keep(ctx context.Context) error {
	timer := time.NewTimer(c.InitTimeout)
	defer timer.Stop()
	select {
	case <-c.inits:
	case <-timer.C:
		return closeReason{closeInitTimeout, "Connection initialisation timeout"}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var asked time.Time // the zero time means no ping since the last read
	for {
		quiet := c.conn.Quiet()
		// The peer has sent something since the ping.
		if time.Since(asked) > quiet {
			asked = time.Time{}
		}
		wait := c.Keepalive
		switch {
		case quiet < c.Keepalive:
			wait -= quiet
		case asked.IsZero():
			asked = time.Now()
			c.out.urgent(textFrame(`{"type":"ping"}`))
		case c.gone(quiet):
			return closeReason{code: closeAbnormally, reason: "the peer vanished"}
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// gone decides about a peer that didn't answer a ping. If its kernel still responds, the peer may
// have much to read first: it gets the time of a slow reader.
func (c *connection) gone(quiet time.Duration) bool {
	vanished, known := clients.Vanished(c.conn.Carrier)
	return vanished || !known || quiet > c.Patience
}
