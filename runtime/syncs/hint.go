package syncs

// A Hint says that something has changed, so its one receiver reads the truth again. Hints that nobody has
// received yet are one. Its methods are safe for concurrent use.
type Hint chan struct{}

// NewHint returns a hint that wasn't sent.
func NewHint() Hint { return make(Hint, 1) }

// Send sends the hint. It doesn't block.
func (h Hint) Send() {
	select {
	case h <- struct{}{}:
	default:
	}
}

// Take receives the hint if it was sent, and reports whether it was.
func (h Hint) Take() bool {
	select {
	case <-h:
		return true
	default:
		return false
	}
}
