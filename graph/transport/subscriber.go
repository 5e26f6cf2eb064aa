package transport

import (
	"context"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/runtime"
)

// A subscriber is a running operation of a WebSocket.
type subscriber struct {
	queue  *opQueue
	cancel context.CancelFunc
}

// refuseMessage responds to a message that doesn't fit in memory. If the message's id came first, the
// operation fails. Otherwise the WebSocket ends.
func (c *connection) refuseMessage(id string, why error) error {
	if c.acting == nil || id == "" {
		return closeReason{closeTryLater, why.Error()}
	}
	return c.subscribe(c.acting, clientMessage{ID: &id}, &reservation{}, why)
}

// subscribe begins an operation. If failed isn't nil, it responds with that error instead.
func (c *connection) subscribe(ctx context.Context, m clientMessage, h *reservation, failed error) error {
	switch {
	case c.acting == nil:
		return closeReason{closeUnauthorized, "Unauthorized"}
	case m.ID == nil || *m.ID == "" || len(*m.ID) > 128:
		return closeReason{closeBadRequest, "invalid message: subscribe needs an id of 1 to 128 bytes"}
	}
	id := *m.ID
	var params *graphql.RawParams
	err := failed
	if err == nil {
		params, err = h.decodeParams(ctx, m.Payload)
	}
	if err != nil && runtime.CodeOf(err) == runtime.CodeInvalidInput {
		return closeReason{closeBadRequest, "invalid message: " + err.Error()}
	}
	if err == nil {
		err = h.Operate()
	}
	running, cancel := context.WithCancel(ctx)
	s := &subscriber{queue: c.out.queue(id, c.Budget), cancel: cancel}
	switch there, full := c.remember(id, s); {
	case there:
		cancel()
		return closeReason{closeDuplicate, "Subscriber for " + id + " already exists"}
	case full && err == nil:
		err = runtime.Errorf(runtime.CodeLimitExceeded, "a WebSocket may have %d operations at a time", c.MaxOperations)
	}
	if err != nil {
		cancel()
		c.forget(id, s)
		return c.refuseOperation(ctx, s.queue.envelope, err)
	}
	// If a peer starts many operations and reads nothing, nothing more is read from it.
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		cancel()
		return nil
	}
	h = h.move()
	c.running.Go(func() {
		defer func() { <-c.slots }()
		defer h.release() // when the answer is written
		defer cancel()
		last := c.operate(running, s.queue, params, h)
		if c.forget(id, s) { // otherwise the client has completed it
			s.queue.put(last)
		}
		s.queue.waitBelow(ctx, 1) // also after a complete: the writer may still have what was dropped
	})
	return nil
}

// refuseOperation responds to an operation that doesn't begin. A refusal needs no goroutine. The next
// message is read only while few of these responses wait for the peer.
func (c *connection) refuseOperation(ctx context.Context, of envelope, err error) error {
	payload := c.failed(ctx, err).payload
	text := make([]byte, 0, len(of.err)+len(payload)+1)
	text = append(append(append(text, of.err...), payload...), '}')
	c.refusals.put(message{kind: messageRaw, payload: clients.Frame(clients.OpText, text)})
	c.refusals.waitBelow(ctx, c.Budget)
	return nil
}

// remember reserves an id. there reports that an operation has the id already. full reports that
// the WebSocket has as many operations as allowed.
func (c *connection) remember(id string, s *subscriber) (there, full bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, there = c.subscribers[id]; !there {
		full = len(c.subscribers) >= c.MaxOperations
		c.subscribers[id] = s
	}
	return there, full
}

// operate runs an operation, and returns its last message.
func (c *connection) operate(ctx context.Context, l *opQueue, params *graphql.RawParams, h *reservation) message {
	ctx = graphql.StartOperationTrace(ctx)
	op, refused := c.prepare(ctx, c.exec, params, c.header)
	if refused != nil {
		return message{kind: messageError, payload: appendErrors(nil, refused.Errors)}
	}
	if op.kind() == ast.Subscription {
		if err := c.Settings.subscribe(ctx, h); err != nil {
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
	return message{kind: messageComplete}
}

// failed returns the last message of a failed operation.
func (c *connection) failed(ctx context.Context, err error) message {
	return message{kind: messageError, payload: appendErrors(nil, gqlerror.List{c.Present(ctx, err)})}
}

// forget frees the id of s. It reports false if s had no id any longer.
func (c *connection) forget(id string, s *subscriber) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.subscribers[id] != s {
		return false
	}
	delete(c.subscribers, id)
	return true
}

// complete ends an operation that the client completed. An unknown id is no error, because the
// operation may have ended already.
func (c *connection) complete(id string) {
	c.mu.Lock()
	s := c.subscribers[id]
	delete(c.subscribers, id)
	c.mu.Unlock()
	if s != nil {
		s.cancel()
		s.queue.drop()
	}
}
