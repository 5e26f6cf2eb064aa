package executions

import (
	"strings"
	"testing"
	"time"
)

// TestPrintedAt reads times from raw messages.
func TestPrintedAt(t *testing.T) {
	const message = `{"id":"1","type":"next","payload":{"data":{"executionEvents":{"__typename":"ExecutionOutput","text":"at=1700000000000000123;`
	if got, ok := printedAt([]byte(message + strings.Repeat(".", 100))); !ok || !got.Equal(time.Unix(1700000000, 123)) {
		t.Errorf("printed at %v, %v", got, ok)
	}
	for _, text := range []string{"", "at=", "at=12", "at=x;", "no time"} {
		if _, ok := printedAt([]byte(text)); ok {
			t.Errorf("%q has a time", text)
		}
	}
}
