package api

import (
	"testing"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/e2e/bed"
)

// resume follows an execution to its end, and resumes from the last cursor after every cut. It
// returns both streams' output, and the number of cuts.
func resume(t *testing.T, b bed.Bed, id string) ([2]string, int) {
	t.Helper()
	var after *string
	var both [2][]byte
	cuts := 0
	for finished := false; !finished; {
		err := b.Follow(t.Context(), id, after, func(e client.Event) error {
			after = &e.Cursor
			finished = e.Type == "ExecutionFinished"
			both[index(e)] = append(both[index(e)], e.Base64...)
			if e.Type == "ExecutionOutputLost" {
				t.Errorf("lost %d bytes: %s", e.Bytes, e.Reason)
			}
			return nil
		})
		if finished {
			break
		}
		if err == nil || t.Context().Err() != nil {
			t.Fatalf("ended without the end: %v", err)
		}
		cuts++
	}
	return [2]string{string(both[0]), string(both[1])}, cuts
}

// index returns 0 for an event of stdout, 1 for one of stderr.
func index(e client.Event) int {
	if e.Stream == "STDERR" {
		return 1
	}
	return 0
}
