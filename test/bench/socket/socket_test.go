package socket

import "testing"

// TestMessages reads sizes and ends from raw messages.
func TestMessages(t *testing.T) {
	const message = `{"id":"1","type":"next","payload":{"data":{"executionEvents":{"__typename":"ExecutionOutput","text":"01\\n23\\n"}}}}`
	if n := textBytes([]byte(message)); n != 6 {
		t.Errorf("%d bytes, want 6", n)
	}
	if isLast([]byte(message)) || !isLast([]byte(`{"id":"1","type":"complete"}`)) || !isLast([]byte(`{"id":"17","type":"complete"}`)) {
		t.Error("the last message isn't recognised")
	}
}
