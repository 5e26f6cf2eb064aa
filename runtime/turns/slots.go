package turns

import "context"

// Slots limit how many callers work at once to their capacity. They don't say who
// is next.
type Slots chan struct{}

// Do works in a slot. It returns ctx's cause, without working, if ctx ends before
// one is free.
func (s Slots) Do(ctx context.Context, work func() error) error {
	select {
	case s <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s }()
	return work()
}
