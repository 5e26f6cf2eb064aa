package agent

import (
	"errors"
	"testing"
)

// An execution may end after all of its stdin was sent and before the sender checks again. That
// isn't an error.
func TestStdinSentBeforeTheEndIsNoError(t *testing.T) {
	var w stdinWindow
	w.init()
	if err := w.open(0, 100); err != nil {
		t.Fatal(err)
	}
	w.advance(3)
	w.fail(errExited)
	if sent, _, err := w.wait(t.Context(), 3); sent != 3 || err != nil {
		t.Errorf("what was sent: %d, %v", sent, err)
	}
	if sent, _, err := w.wait(t.Context(), 4); sent != 3 || !errors.Is(err, errExited) {
		t.Errorf("what wasn't: %d, %v", sent, err)
	}
}
