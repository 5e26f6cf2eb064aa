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
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/rockpool/rockpool/graph/transport/response"
	"github.com/rockpool/rockpool/graph/transport/socket"
	"github.com/rockpool/rockpool/runtime"
)

// Subprotocol is the one that WebSockets speak: that of npm graphql-ws.
const Subprotocol = "graphql-transport-ws"

// The codes that the subprotocol closes a WebSocket with.
const (
	closeBadRequest   websocket.StatusCode = 4400
	closeUnauthorized websocket.StatusCode = 4401
	closeForbidden    websocket.StatusCode = 4403
	closeInitTimeout  websocket.StatusCode = 4408
	closeDuplicate    websocket.StatusCode = 4409
	closeTooManyInits websocket.StatusCode = 4429
	closeTryLater                          = websocket.StatusTryAgainLater
	closeGoingAway                         = websocket.StatusGoingAway
	closeAbnormally                        = websocket.StatusCode(0) // without a word: nobody hears it
	maxReason                              = 120                     // bytes, of 123 that a close frame has
	initLimit                              = 64 << 10                // bytes of a message before the acknowledgement
	closeTime                              = time.Second             // for the peer's answer to a close
)

// WebSocket carries operations of all three kinds, any number at a time up to
// a cap. Compression is off.
type WebSocket struct{ Settings }

// Supports reports whether it is for this transport.
func (WebSocket) Supports(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// Do serves a WebSocket until it ends. Cancelling the request's context ends it
// with 1001.
func (t WebSocket) Do(w http.ResponseWriter, r *http.Request, exec graphql.GraphExecutor) {
	if !hasToken(r.Header.Values("Sec-WebSocket-Protocol"), Subprotocol) {
		t.refuse(w, r, http.StatusBadRequest, runtime.Errorf(runtime.CodeInvalidInput,
			"the WebSocket must ask for the subprotocol %s", Subprotocol))
		return
	}
	c := &connection{Settings: t.Settings, exec: exec, header: r.Header, out: newOutbox(), lanes: map[string]*subscriber{}, inits: make(chan struct{}),
		slots: make(chan struct{}, 2*t.MaxOperations)}
	hijack := &socket.Hijacker{ResponseWriter: w, Patience: t.Patience}
	ws, err := websocket.Accept(hijack, r, &websocket.AcceptOptions{
		Subprotocols:    []string{Subprotocol},
		CompressionMode: websocket.CompressionDisabled,
		// Origins were checked before this is reached.
		InsecureSkipVerify: true,
		OnPingReceived: func(_ context.Context, payload []byte) bool {
			c.out.urgent(frame(opPong, payload)) // it waits for a message that is being written
			return false
		},
	})
	if err != nil {
		return // Accept has answered
	}
	ws.SetReadLimit(initLimit)
	c.ws, c.conn = ws, hijack.Conn
	c.refusals = c.out.lane("", c.Budget)
	defer c.Peers.Keep(r.Context())()
	c.serve(r.Context())
}

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

// A connection is one WebSocket. Three kinds of goroutines share it: one reads,
// one writes, and each operation has its own.
type connection struct {
	Settings
	exec    graphql.GraphExecutor
	header  http.Header
	ws      *websocket.Conn
	conn    *socket.Conn
	out     *outbox
	running sync.WaitGroup // operations, which the reader starts
	inits   chan struct{}  // closed with connection_init
	acked   bool           // the reader's
	slots   chan struct{}  // holds one for each operation that isn't wholly written

	refusals *lane // of operations that didn't begin

	mu    sync.Mutex // guards lanes
	lanes map[string]*subscriber
}

// A subscriber is an operation that runs.
type subscriber struct {
	lane   *lane
	cancel context.CancelFunc
}

// A closing is why a connection ends, and how the peer is told.
type closing struct {
	code   websocket.StatusCode
	reason string
}

func (c closing) Error() string { return c.reason }

func (c *connection) serve(parent context.Context) {
	ctx, end := context.WithCancelCause(parent)
	defer end(nil)
	var others sync.WaitGroup
	others.Go(func() { c.write(ctx, end) })
	others.Go(func() { end(c.keep(ctx)) })
	// The reader waits for the peer, whatever happens here.
	read := make(chan struct{})
	go func() {
		defer close(read)
		end(c.read(ctx, end))
	}()
	<-ctx.Done()
	c.conn.Hurry(closeTime)
	others.Wait()
	c.sayWhy(context.Cause(ctx), read)
	_ = c.ws.CloseNow()
	<-read
	c.running.Wait()
}

// sayWhy sends the close frame, and gives the peer a moment to answer.
func (c *connection) sayWhy(cause error, read <-chan struct{}) {
	why := closing{closeGoingAway, "the server is stopping"}
	errors.As(cause, &why)
	if why.code == closeAbnormally {
		return
	}
	reason := strings.ToValidUTF8(why.reason[:min(len(why.reason), maxReason)], "")
	payload := append([]byte{byte(why.code >> 8), byte(why.code)}, reason...)
	if _, err := c.conn.Write(frame(opClose, payload)); err != nil {
		return
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(closeTime))
	<-read
}

// read takes in messages until there are no more, and returns why. What comes
// after the end of ctx, or after a mistake, is dropped: an unread message would
// make the kernel take the close frame back.
func (c *connection) read(ctx context.Context, end context.CancelCauseFunc) error {
	reading := context.WithoutCancel(ctx) // else the library would close at once
	left := closing{code: closeAbnormally, reason: "the peer left"}
	late := time.AfterFunc(bodyTime, func() { end(left) }) // runs while a message arrives
	defer late.Stop()
	for {
		late.Stop()
		kind, reader, err := c.ws.Reader(reading)
		if err != nil {
			return left
		}
		if ctx.Err() != nil || kind != websocket.MessageText {
			end(closing{closeBadRequest, "messages must be text"})
			if _, err := io.Copy(io.Discard, reader); err != nil {
				return left
			}
			continue
		}
		h := c.holdOf(ctx)
		late.Reset(bodyTime)
		text, err := h.read(reader, -1, 2*c.MaxBody) // the library ends it at MaxBody, and says why
		refused := runtime.CodeOf(err) == runtime.CodeQuotaExceeded
		switch {
		case err == nil:
			late.Stop()
			err = c.handle(ctx, text, h)
		case refused:
			h.release()
			err = c.refused(ctx, idOf(text), err)
		default:
			h.release()
			return left // the library told it if the message was too long
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

// A message is one of the subprotocol's.
type message struct {
	ID      *string         `json:"id"`
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload"`
}

// idOf returns a message's id from its beginning; "" if it isn't in there.
func idOf(begun []byte) string {
	tokens := json.NewDecoder(bytes.NewReader(begun[:min(len(begun), freeBody)]))
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

// refused answers a message that there is no memory for: the operation that it was
// to begin fails, if its id came first. Else the WebSocket ends.
func (c *connection) refused(ctx context.Context, id string, why error) error {
	if !c.acked || id == "" {
		return closing{closeTryLater, why.Error()}
	}
	return c.subscribe(ctx, message{ID: &id}, &hold{}, why)
}

// handle does what a message asks for. It is done with h then.
func (c *connection) handle(ctx context.Context, text []byte, h *hold) error {
	defer h.release()
	if ctx.Err() != nil {
		return nil
	}
	var m message
	if err := h.Turn(ctx, len(text), func() error { return decode(text, &m) }); err != nil {
		return closing{closeBadRequest, "invalid message: " + err.Error()}
	}
	switch m.Type {
	case "connection_init":
		return c.init(m, h)
	case "ping":
		c.out.urgent(textFrame(`{"type":"pong"}`))
	case "pong":
	case "subscribe":
		return c.subscribe(ctx, m, h, nil)
	case "complete":
		if m.ID == nil {
			return closing{closeBadRequest, "invalid message: complete has no id"}
		}
		c.complete(*m.ID)
	default:
		return closing{closeBadRequest, "invalid message: its type is none of the protocol's"}
	}
	return nil
}

func (c *connection) init(m message, h *hold) error {
	if c.acked {
		return closing{closeTooManyInits, "Too many initialisation requests"}
	}
	if err := h.expand(m.Payload); err != nil { // handle has checked it
		return closing{closeTryLater, err.Error()}
	}
	var payload map[string]any
	if m.Payload != nil && json.Unmarshal(m.Payload, &payload) != nil {
		return closing{closeBadRequest, "invalid message: the payload of connection_init must be an object"}
	}
	if c.Admit != nil {
		if refusal := c.Admit(c.header, payload); refusal != "" {
			return closing{closeForbidden, refusal}
		}
	}
	c.acked = true
	close(c.inits)
	c.ws.SetReadLimit(c.MaxBody)
	c.out.urgent(textFrame(`{"type":"connection_ack"}`))
	return nil
}

// subscribe begins an operation, or one that has failed already.
func (c *connection) subscribe(ctx context.Context, m message, h *hold, failed error) error {
	switch {
	case !c.acked:
		return closing{closeUnauthorized, "Unauthorized"}
	case m.ID == nil || *m.ID == "" || len(*m.ID) > 128:
		return closing{closeBadRequest, "invalid message: subscribe needs an id of 1 to 128 bytes"}
	}
	id := *m.ID
	var params *graphql.RawParams
	err := failed
	if err == nil {
		params, err = h.decodeParams(ctx, m.Payload)
	}
	if err != nil && runtime.CodeOf(err) == runtime.CodeInvalidInput {
		return closing{closeBadRequest, "invalid message: " + err.Error()}
	}
	if err == nil {
		err = h.Operate()
	}
	running, cancel := context.WithCancel(ctx)
	s := &subscriber{lane: c.out.lane(id, c.Budget), cancel: cancel}
	switch there, full := c.remember(id, s); {
	case there:
		cancel()
		return closing{closeDuplicate, "Subscriber for " + id + " already exists"}
	case full && err == nil:
		err = runtime.Errorf(runtime.CodeLimitExceeded, "a WebSocket may have %d operations at a time", c.MaxOperations)
	}
	if err != nil {
		cancel()
		c.forget(id, s)
		return c.sayRefused(ctx, s.lane.envelope, err)
	}
	// From a peer that asks much and reads nothing, nothing more is read.
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		cancel()
		return nil
	}
	h = h.move()
	c.running.Go(func() {
		defer func() { <-c.slots }()
		defer h.release() // once the answer is written
		defer cancel()
		last := c.operate(running, s.lane, params, h)
		if c.forget(id, s) { // else the client has completed it
			s.lane.put(last)
		}
		s.lane.below(ctx, 1) // also after a complete: the writer may have what it dropped
	})
	return nil
}

// sayRefused answers an operation that doesn't begin. What is refused costs no goroutine;
// the next message is read only when little of this waits for the peer to read.
func (c *connection) sayRefused(ctx context.Context, of envelope, err error) error {
	payload := c.failed(ctx, err).payload
	text := make([]byte, 0, len(of.err)+len(payload)+1)
	text = append(append(append(text, of.err...), payload...), '}')
	c.refusals.put(parcel{kind: parcelRaw, payload: frame(opText, text)})
	c.refusals.below(ctx, c.Budget)
	return nil
}

// remember takes an id, unless an operation has it. full reports that the WebSocket
// had as many operations before as it may have.
func (c *connection) remember(id string, s *subscriber) (there, full bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, there = c.lanes[id]; !there {
		full = len(c.lanes) >= c.MaxOperations
		c.lanes[id] = s
	}
	return there, full
}

// operate runs an operation, and returns what is to be said last.
func (c *connection) operate(ctx context.Context, l *lane, params *graphql.RawParams, h *hold) parcel {
	ctx = graphql.StartOperationTrace(ctx)
	op, refused := prepare(ctx, c.exec, params, c.header)
	if refused != nil {
		return parcel{kind: parcelError, payload: response.AppendErrors(nil, refused.Errors)}
	}
	if op.kind() == ast.Subscription {
		if err := h.Subscribe(); err != nil {
			return c.failed(ctx, err)
		}
	}
	if err := c.execute(h, op); err != nil {
		return c.failed(ctx, err)
	}
	ctx, stream := c.open(ctx, op, h, "")
	defer stream.Close()
	if err := c.pump(ctx, stream, l, h, op.kind() != ast.Subscription); err != nil {
		return c.failed(ctx, err)
	}
	return parcel{kind: parcelComplete}
}

// failed returns an operation's last word.
func (c *connection) failed(ctx context.Context, err error) parcel {
	return parcel{kind: parcelError, payload: response.AppendErrors(nil, gqlerror.List{c.Present(ctx, err)})}
}

// forget reports whether s was there. Then its id is free again.
func (c *connection) forget(id string, s *subscriber) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lanes[id] != s {
		return false
	}
	delete(c.lanes, id)
	return true
}

// complete ends an operation that the client doesn't want any more. One that
// isn't there has ended by itself.
func (c *connection) complete(id string) {
	c.mu.Lock()
	s := c.lanes[id]
	delete(c.lanes, id)
	c.mu.Unlock()
	if s != nil {
		s.cancel()
		s.lane.drop()
	}
}

// keep returns when the peer is gone, or has not begun in time.
func (c *connection) keep(ctx context.Context) error {
	timer := time.NewTimer(c.InitTimeout)
	defer timer.Stop()
	select {
	case <-c.inits:
	case <-timer.C:
		return closing{closeInitTimeout, "Connection initialisation timeout"}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var asked time.Time // zero: not since something was heard
	for {
		quiet := c.conn.Quiet()
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
			return closing{code: closeAbnormally, reason: "the peer vanished"}
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// gone judges a peer that didn't answer a ping. One whose kernel answers may
// have much to read before: it has as long as a slow reader has.
func (c *connection) gone(quiet time.Duration) bool {
	vanished, known := socket.Vanished(c.conn.TCP)
	return vanished || !known || quiet > c.Patience
}
