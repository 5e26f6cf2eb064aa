package access

import "sync"

// sharedSlots limit how many things all runners do concurrently. Each runner always gets a first one, which doesn't
// count for all. It gets one more while it has fewer than are free for all, so busy runners leave some for others.
type sharedSlots struct {
	each int           // of one runner, at most
	all  chan struct{} // a value for each one that counts for all
}

func newSharedSlots(all, each int) *sharedSlots {
	return &sharedSlots{each: each, all: make(chan struct{}, all)}
}

// A runnerSlots is what one runner may take. Its methods are safe for concurrent use.
type runnerSlots struct {
	of          *sharedSlots
	first, more chan struct{} // a value for each slot
}

// Share returns the slots of one runner, which has taken none yet.
func (s *sharedSlots) Share() *runnerSlots {
	return &runnerSlots{of: s, first: make(chan struct{}, 1), more: make(chan struct{}, s.each-1)}
}

// Go calls f in a goroutine of parts, with a slot. It reports false if the runner gets none now.
func (s *runnerSlots) Go(parts *sync.WaitGroup, f func()) bool {
	release, ok := s.Take()
	if ok {
		parts.Go(func() {
			defer release()
			f()
		})
	}
	return ok
}

// Take takes a slot, and returns a function that releases it. It reports false if the runner gets none now.
func (s *runnerSlots) Take() (release func(), ok bool) {
	select {
	case s.first <- struct{}{}:
		return func() { <-s.first }, true
	default:
	}
	if len(s.more) >= cap(s.of.all)-len(s.of.all) {
		return nil, false
	}
	select {
	case s.more <- struct{}{}:
	default:
		return nil, false
	}
	select {
	case s.of.all <- struct{}{}:
		return func() { <-s.of.all; <-s.more }, true
	default:
		<-s.more
		return nil, false
	}
}
