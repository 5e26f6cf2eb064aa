package transport

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errSlow means that a lane's reader read nothing for too long.
var errSlow = errors.New("slow reader")

// An outbox holds what waits to be written to one peer: a lane for each operation. Lanes are served
// in turn, so that one operation with much output can't delay the others. Any number of goroutines
// may put; one takes.
type outbox struct {
	wake chan struct{} // capacity 1: there is something to take

	mu    sync.Mutex // guards the fields below, and the lanes
	first [][]byte   // go before all lanes: acknowledgements, pings, pongs
	lanes []*lane    // those with something to send
}

// newOutbox returns an empty outbox.
func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

// A lane is one operation's part of an outbox.
type lane struct {
	box      *outbox
	budget   int
	envelope envelope
	taken    chan struct{} // capacity 1: something was written
	queue    []parcel
	bytes    int // in queue, and being written
}

// A parcel is a message that waits, or is being written.
type parcel struct {
	lane    *lane
	kind    parcelKind
	payload []byte
	cursor  string
}

// size returns the bytes that a parcel counts for, including 64 for the parcel itself.
func (p parcel) size() int { return len(p.payload) + 64 }

// A parcelKind says what kind of message a parcel is.
type parcelKind int

const (
	parcelRaw parcelKind = iota // payload is the whole message
	parcelNext
	parcelError
	parcelComplete
)

// lane returns a new lane for an operation. It blocks its operation when budget bytes wait.
func (b *outbox) lane(id string, budget int) *lane {
	return &lane{box: b, budget: budget, envelope: newEnvelope(id), taken: make(chan struct{}, 1)}
}

// urgent puts a whole message before all others. It never blocks. At most 64 wait, because a peer
// can cause them without reading: urgent drops further ones and returns false.
func (b *outbox) urgent(message []byte) bool {
	const most = 64
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.first) >= most {
		return false
	}
	b.first = append(b.first, message)
	hint(b.wake)
	return true
}

// waitForRoom waits until the lane has less than its budget. It returns errSlow if nothing of the lane was
// written for patience.
func (l *lane) waitForRoom(ctx context.Context, patience time.Duration) error {
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

// free reports whether the lane has less than its budget.
func (l *lane) free() bool {
	l.box.mu.Lock()
	defer l.box.mu.Unlock()
	return l.bytes < l.budget
}

// waitBelow waits until the lane has fewer than bytes, or until ctx ends. The writer ends the
// connection of a peer that reads nothing, so the wait has an end.
func (l *lane) waitBelow(ctx context.Context, bytes int) {
	for {
		l.box.mu.Lock()
		waiting := l.bytes
		l.box.mu.Unlock()
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

// push puts an answer into the lane. It never blocks.
func (l *lane) push(m Message) {
	l.put(parcel{kind: parcelNext, payload: m.Payload, cursor: m.Cursor})
}

// put adds a parcel to the lane. It never blocks.
func (l *lane) put(p parcel) {
	p.lane = l
	l.box.mu.Lock()
	defer l.box.mu.Unlock()
	if len(l.queue) == 0 {
		l.box.lanes = append(l.box.lanes, l)
	}
	l.queue = append(l.queue, p)
	l.bytes += p.size()
	hint(l.box.wake)
}

// drop removes what waits in the lane, because its reader no longer needs it.
func (l *lane) drop() {
	l.box.mu.Lock()
	defer l.box.mu.Unlock()
	for _, p := range l.queue {
		l.bytes -= p.size()
	}
	l.queue = nil // take skips the empty lane
	hint(l.taken)
}

// batchBytes is the approximate size of one write.
const batchBytes = 64 << 10

// take appends to batch what is written next: all urgent messages, and one message from each lane
// in turn until there are batchBytes. An empty batch means that nothing waits.
func (b *outbox) take(batch []parcel) []parcel {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, message := range b.first {
		batch = append(batch, parcel{payload: message})
	}
	clear(b.first)
	b.first = b.first[:0]
	for size := 0; len(b.lanes) > 0 && size < batchBytes; {
		l := b.lanes[0]
		// A lane that has more to send goes to the end, after the others.
		copy(b.lanes, b.lanes[1:])
		b.lanes[len(b.lanes)-1] = nil
		b.lanes = b.lanes[:len(b.lanes)-1]
		if len(l.queue) == 0 {
			continue
		}
		p := l.queue[0]
		l.queue[0] = parcel{}
		if l.queue = l.queue[1:]; len(l.queue) > 0 {
			b.lanes = append(b.lanes, l)
		}
		batch = append(batch, p)
		size += len(p.payload)
	}
	return batch
}

// wrote frees the room of a batch after its write, whether or not it succeeded.
func (b *outbox) wrote(batch []parcel) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range batch {
		if p.lane != nil {
			p.lane.bytes -= p.size()
			hint(p.lane.taken)
		}
	}
}

// hint sends without blocking: a pending hint is enough.
func hint(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
