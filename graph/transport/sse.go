package transport

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/rockpool/rockpool/clients"
)

// serveEvents serves one operation of any kind by server-sent events: the distinct connections mode of
// GraphQL over SSE. An event's id is its cursor. A client that reconnects with Last-Event-ID continues
// after it.
func (s Settings) serveEvents(w http.ResponseWriter, r *http.Request, exec graphql.GraphExecutor) {
	body := clients.NewBody(w, r, s.Silence)
	if r.Method == http.MethodGet && r.ContentLength != 0 {
		body.Drain() // otherwise its deadline would end the events
	}
	h := s.reserve(r.Context())
	defer h.release()
	op, refused, ok := s.begin(afterwards{w, body}, r, exec, h, func(h *reservation) (*graphql.RawParams, int, error) { return s.readParams(w, r, body, h) })
	if !ok {
		return
	}
	if refused == nil && op.kind() == ast.Subscription {
		if err := s.subscribe(r.Context(), h); err != nil {
			s.refuse(w, r, statusOf(w, err, http.StatusTooManyRequests, 0), err)
			return
		}
	}
	if refused == nil {
		if err := s.execute(h, op); err != nil {
			h.release()
			s.refuse(w, r, statusOf(w, err, http.StatusServiceUnavailable, 0), err)
			return
		}
	}
	header := w.Header()
	// From here on the status is 200, and errors are sent as events.
	header.Set("Content-Type", typeEvents+"; charset=utf-8")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // otherwise nginx would buffer events
	header.Set("X-Content-Type-Options", "nosniff")
	out := &events{w: w, control: http.NewResponseController(w), patience: s.Patience}
	if conn := clients.ConnOf(r.Context()); conn != nil {
		out.tcp = clients.Carrier(conn)
	}
	if out.tcp != nil {
		clients.BoundUnsent(out.tcp)
	}
	s.sendEvents(r, op, h, refused, out)
}

// sendEvents runs the operation in another goroutine. This one writes. So the operation can end while a
// write waits for a peer that reads nothing.
func (s Settings) sendEvents(r *http.Request, op operation, h *reservation, refused *graphql.Response, out *events) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	box := newSendQueue()
	l := box.queue("", s.Budget)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel() // before the wait
	running.Go(func() {
		defer l.put(message{kind: messageComplete})
		if refused != nil {
			l.push(Message{Payload: Encode(refused)})
			return
		}
		ctx, stream := s.open(ctx, op, h, r.Header.Get("Last-Event-ID"))
		defer stream.Close()
		if err := s.pump(ctx, stream, l, h, op.kind() != ast.Subscription); err != nil && (ctx.Err() == nil || callerEnded(ctx) != nil) {
			l.push(Message{Payload: Encode(&graphql.Response{Errors: gqlerror.List{s.Present(ctx, err)}})})
		}
	})
	if out.write(nil) != nil { // the headers
		return
	}
	keepalive := time.NewTicker(s.Keepalive)
	defer keepalive.Stop()
	var messages []message
	for {
		messages = box.take(messages[:0])
		for _, p := range messages {
			if out.message(p) != nil || p.kind == messageComplete {
				return
			}
		}
		box.wrote(messages)
		if len(messages) > 0 {
			keepalive.Reset(s.Keepalive)
			continue
		}
		select {
		case <-box.wake:
		case <-keepalive.C:
			if gone, _ := clients.Vanished(out.tcp); gone || out.write([]byte(":\n\n")) != nil {
				return
			}
		case <-ctx.Done():
			// The caller's token ended. The operation ends with that error, while the peer may
			// still get it.
			if cause := callerEnded(ctx); cause != nil {
				last := Encode(&graphql.Response{Errors: gqlerror.List{s.Present(context.WithoutCancel(ctx), cause)}})
				if out.message(message{kind: messageNext, payload: last}) == nil {
					_ = out.message(message{kind: messageComplete}) // a peer that left needs no answer
				}
			}
			return
		}
	}
}

// events is the only writer of a response. Each piece has its own deadline.
type events struct {
	w        http.ResponseWriter
	control  *http.ResponseController
	tcp      *net.TCPConn // nil if none carries it
	patience time.Duration
	scratch  []byte
}

// message writes a message as an event, with its cursor as id.
func (e *events) message(p message) error {
	e.scratch = e.scratch[:0]
	if p.cursor != "" {
		e.scratch = append(append(append(e.scratch, "id: "...), strings.ReplaceAll(p.cursor, "\n", "")...), '\n')
	}
	if p.kind == messageComplete {
		e.scratch = append(e.scratch, "event: complete\ndata: \n\n"...)
		return e.write(e.scratch)
	}
	e.scratch = append(e.scratch, "event: next\ndata: "...) // a payload is one line: JSON strings contain no line end
	return e.write(e.scratch, p.payload, []byte("\n\n"))
}

// write writes texts without joining them, since a copy of an answer would take as much memory
// again.
func (e *events) write(texts ...[]byte) error {
	for _, text := range texts {
		for len(text) > 0 {
			piece := text[:min(len(text), clients.WritePiece)]
			// Writers without deadlines exist only in tests.
			_ = e.control.SetWriteDeadline(time.Now().Add(e.patience))
			if _, err := e.w.Write(piece); err != nil {
				return err
			}
			text = text[len(piece):]
		}
	}
	_ = e.control.SetWriteDeadline(time.Now().Add(e.patience))
	return e.control.Flush()
}
