package transport

import (
	"context"
	"encoding/json"
	"net"

	"github.com/rockpool/rockpool/clients"
)

// textFrame returns a frame. Frames are made here, not by the library, so that a payload that many
// watchers share goes to the kernel without a copy.
func textFrame(text string) []byte { return clients.Frame(clients.OpText, []byte(text)) }

// An envelope has the beginnings of one operation's messages.
type envelope struct{ next, err, complete string }

// newEnvelope returns the envelope of the operation with this id.
func newEnvelope(id string) envelope {
	quoted, _ := json.Marshal(id) // a string can always be marshalled
	start := `{"id":` + string(quoted) + `,"type":`
	return envelope{start + `"next","payload":`, start + `"error","payload":`, start + `"complete"`}
}

// small is the size of payloads that are copied, so that many are written as one piece.
const small = 1 << 10

// A batch is what is written with one call. Its frames' headers and small payloads are in scratch.
type batch struct {
	buffers net.Buffers
	scratch []byte
	mark    int // where the part of scratch begins that isn't in buffers yet
}

// reset empties the batch, and keeps its memory.
func (b *batch) reset() {
	clear(b.buffers)
	b.buffers, b.scratch, b.mark = b.buffers[:0], b.scratch[:0], 0
}

// add appends a message's frame.
func (b *batch) add(p message) {
	before := ""
	switch p.kind {
	case messageRaw:
		b.scratch = append(b.scratch, p.payload...)
		return
	case messageNext:
		before = p.queue.envelope.next
	case messageError:
		before = p.queue.envelope.err
	case messageComplete:
		before = p.queue.envelope.complete
	}
	b.scratch = clients.AppendFrameHeader(b.scratch, clients.OpText, len(before)+len(p.payload)+1)
	b.scratch = append(b.scratch, before...)
	if len(p.payload) <= small {
		b.scratch = append(b.scratch, p.payload...)
	} else {
		b.flush()
		b.buffers = append(b.buffers, p.payload)
	}
	b.scratch = append(b.scratch, '}')
}

// flush moves the new part of scratch to buffers.
func (b *batch) flush() {
	if b.mark < len(b.scratch) {
		b.buffers = append(b.buffers, b.scratch[b.mark:])
		b.mark = len(b.scratch)
	}
}

// write sends what the sendQueue has, until ctx ends. A failed write ends the connection through end.
func (c *connection) write(ctx context.Context, end context.CancelCauseFunc) {
	var messages []message
	var b batch
	for ctx.Err() == nil {
		messages = c.out.take(messages[:0])
		if len(messages) == 0 {
			select {
			case <-c.out.wake:
			case <-ctx.Done():
			}
			continue
		}
		for _, p := range messages {
			b.add(p)
		}
		b.flush()
		_, err := c.conn.WriteAll(b.buffers)
		c.out.wrote(messages)
		clear(messages)
		b.reset()
		if err != nil {
			end(closeReason{code: closeAbnormally, reason: "the peer takes nothing"})
		}
	}
}
