package pool

import "context"

// Follow sends what look returns for a pool until the pool or ctx ends. It sends the first value only
// if it stands, and nothing that the receiver doesn't see.
func Follow[T any](ctx context.Context, p *Pool, out chan<- T, look func(*Pool) (T, <-chan struct{}), stands func(T) bool, sees func() bool) {
	value, changed := look(p)
	if !stands(value) {
		changed = next(ctx, p, changed)
	}
	for changed != nil {
		value, changed = look(p)
		if !sees() {
			changed = next(ctx, p, changed)
			continue
		}
		select {
		case out <- value:
			changed = next(ctx, p, changed)
		case <-changed: // not received yet: send the newer value instead
		case <-ctx.Done():
			return
		}
	}
}

// next waits for a change of p. It returns nil if there will be none.
func next(ctx context.Context, p *Pool, changed <-chan struct{}) <-chan struct{} {
	select {
	case <-changed:
		return changed
	case <-ctx.Done():
		return nil
	case <-p.Closed():
	}
	select {
	case <-changed: // the last change came just before the end
		return changed
	default:
		return nil
	}
}
