package syncs

// Closed reports whether c, to which nothing is sent, is closed. It doesn't block.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Offer sends a value unless that would block.
func Offer[T any](c chan<- T, value T) {
	select {
	case c <- value:
	default:
	}
}
