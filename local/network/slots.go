package network

// Slots limit how many things all runners do concurrently. Each runner always gets a first one, which doesn't
// count for all. It gets one more while it has fewer than are free for all, so busy runners leave some for others.
type Slots struct {
	each int           // of one runner, at most
	all  chan struct{} // a value for each one that counts for all
}

// NewSlots returns slots of which one runner has at most each.
func NewSlots(all, each int) *Slots { return &Slots{each: each, all: make(chan struct{}, all)} }

// A Share is a runner's slots. Its methods are safe for concurrent use.
type Share struct {
	of          *Slots
	first, more chan struct{} // a value for each slot
}

// Share returns a runner's share, without a slot.
func (s *Slots) Share() *Share {
	return &Share{of: s, first: make(chan struct{}, 1), more: make(chan struct{}, s.each-1)}
}

// Take takes a slot, and returns a function that releases it. It reports false if the runner gets none now.
func (s *Share) Take() (release func(), ok bool) {
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
