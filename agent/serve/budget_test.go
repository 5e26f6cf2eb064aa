package serve

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rockpool/rockpool/agent"
)

// A large read is cut by the output limit, so that it needs fewer frames than were reserved.
func TestLimitedFloodFreesItsBudget(t *testing.T) {
	for _, limit := range []int64{10, 10_000, 40_000} {
		b := newBudget()
		x := newExecution(agent.Start{OutputLimit: limit}, b)
		x.ended = true // nothing is killed
		x.emit(1, make([]byte, wideRead))
		x.emit(2, make([]byte, wideRead))
		x.ack(limit, 0)
		if b.held != 0 || x.backlog.end != limit {
			t.Errorf("limit %d: %d bytes held, %d printed", limit, b.held, x.backlog.end)
		}
	}
}

func TestLargeReadsSplitBetweenCharacters(t *testing.T) {
	for skip := range utf8.UTFMax {
		data := []byte(strings.Repeat("x", skip) + strings.Repeat("漢", (maxTail+wideRead-skip)/3))
		frame, rest := framed(data)
		if string(frame)+string(rest) != string(data) || !utf8.Valid(frame) || !utf8.Valid(rest) || max(len(frame), len(rest)) > agent.MaxData || len(rest) == 0 {
			t.Errorf("%d bytes after %d others became %d and %d", len(data), skip, len(frame), len(rest))
		}
	}
	if room := 2*agent.OutputFrameSize + maxTail + wideRead; room > segmentSize {
		t.Errorf("the two frames of a read take %d bytes, and don't lie together", room)
	}
}
