package transport

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime/syncs"
)

// errSlow means that a queue's reader read nothing for too long.
var errSlow = errors.New("slow reader")

// A sendQueue holds what waits to be written to one peer: a queue for each operation. Queues are served
// in turn, so that one operation with much output can't delay the others. Any number of goroutines
// may put; one takes.
type sendQueue struct {
	wake syncs.Hint // there is something to take

	mu     sync.Mutex // guards the fields below, and the queues
	first  [][]byte   // go before all queues: acknowledgements, pings, pongs
	queues []*opQueue // those with something to send
}

func newSendQueue() *sendQueue { return &sendQueue{wake: syncs.NewHint()} }

// An opQueue is one operation's part of a sendQueue.
type opQueue struct {
	sends    *sendQueue
	budget   int
	envelope envelope
	taken    syncs.Hint // something was written
	messages []message
	bytes    int // in messages, and being written
}

// A message waits to be written to the peer, or is being written.
type message struct {
	queue   *opQueue
	kind    messageKind
	payload []byte
	cursor  string
}

// size returns the bytes that a message counts for, including 64 for the message itself.
func (p message) size() int { return len(p.payload) + 64 }

// A messageKind is a message's type in the subprotocol.
type messageKind int

const (
	messageRaw messageKind = iota // payload is the whole message
	messageNext
	messageError
	messageComplete
)

// queue returns a new queue for an operation. It blocks its operation when budget bytes wait.
func (b *sendQueue) queue(id string, budget int) *opQueue {
	return &opQueue{sends: b, budget: budget, envelope: newEnvelope(id), taken: syncs.NewHint()}
}

// urgent puts a whole message before all others. It never blocks. At most 64 wait, because a peer
// can cause them without reading: urgent drops further ones and returns false.
func (b *sendQueue) urgent(text []byte) bool {
	const most = 64
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.first) >= most {
		return false
	}
	b.first = append(b.first, text)
	b.wake.Send()
	return true
}

// waitForRoom waits until the queue has less than its budget. It returns errSlow if nothing of the queue was
// written for patience.
func (l *opQueue) waitForRoom(ctx context.Context, patience time.Duration) error {
	if l.free() {
		return ctx.Err()
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case <-l.taken:
			if l.free() {
				return nil
			}
			timer.Reset(patience)
		case <-timer.C:
			return errSlow
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// free reports whether the queue has less than its budget.
func (l *opQueue) free() bool {
	l.sends.mu.Lock()
	defer l.sends.mu.Unlock()
	return l.bytes < l.budget
}

// waitBelow waits until the queue has fewer than bytes, or until ctx ends. The writer ends the
// connection of a peer that reads nothing, so the wait has an end.
func (l *opQueue) waitBelow(ctx context.Context, bytes int) {
	for {
		l.sends.mu.Lock()
		waiting := l.bytes
		l.sends.mu.Unlock()
		if waiting < bytes {
			return
		}
		select {
		case <-l.taken:
		case <-ctx.Done():
			return
		}
	}
}

// push puts an answer into the queue. It never blocks.
func (l *opQueue) push(m Message) {
	l.put(message{kind: messageNext, payload: m.Payload, cursor: m.Cursor})
}

// put adds a message to the queue. It never blocks.
func (l *opQueue) put(p message) {
	p.queue = l
	l.sends.mu.Lock()
	defer l.sends.mu.Unlock()
	if len(l.messages) == 0 {
		l.sends.queues = append(l.sends.queues, l)
	}
	l.messages = append(l.messages, p)
	l.bytes += p.size()
	l.sends.wake.Send()
}

// drop removes what waits in the queue, because its reader no longer needs it.
func (l *opQueue) drop() {
	l.sends.mu.Lock()
	defer l.sends.mu.Unlock()
	for _, p := range l.messages {
		l.bytes -= p.size()
	}
	l.messages = nil // take skips the empty queue
	l.taken.Send()
}

// batchBytes is the approximate size of one write.
const batchBytes = 64 << 10

// take appends to batch what is written next: all urgent messages, and one message from each queue
// in turn until there are batchBytes. An empty batch means that nothing waits.
func (b *sendQueue) take(batch []message) []message {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, text := range b.first {
		batch = append(batch, message{payload: text})
	}
	clear(b.first)
	b.first = b.first[:0]
	for size := 0; len(b.queues) > 0 && size < batchBytes; {
		l := b.queues[0]
		// A queue that has more to send goes to the end, after the others.
		copy(b.queues, b.queues[1:])
		b.queues[len(b.queues)-1] = nil
		b.queues = b.queues[:len(b.queues)-1]
		if len(l.messages) == 0 {
			continue
		}
		p := l.messages[0]
		l.messages[0] = message{}
		if l.messages = l.messages[1:]; len(l.messages) > 0 {
			b.queues = append(b.queues, l)
		}
		batch = append(batch, p)
		size += len(p.payload)
	}
	return batch
}

// wrote frees the room of a batch after its write, whether or not it succeeded.
func (b *sendQueue) wrote(batch []message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range batch {
		if p.queue != nil {
			p.queue.bytes -= p.size()
			p.queue.taken.Send()
		}
	}
}
