package fairqueue

import "context"

// Slots limits concurrent work to its capacity. It guarantees no order.
type Slots chan struct{}

// Do calls work in a slot. It returns ctx's cause, without working, if ctx ends before a slot is free.
func (s Slots) Do(ctx context.Context, work func() error) error {
	select {
	case s <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s }()
	return work()
}
