package store

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

// TestFileShrinksAfterDeletions: the file has the size of what is kept, and some room.
func TestFileShrinksAfterDeletions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s := open(t, path)
	size := func() int64 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	const input = 16 << 20
	for _, id := range []runtime.BatchID{"a", "b", "c", "d"} {
		b := runtime.Batch{ID: id, RunnerID: "r", CaseCount: 1, State: runtime.BatchRunning}
		if _, _, err := s.AddBatch(t.Context(), b, []byte("start"), []BatchStep{{Value: make([]byte, input/2), Expected: make([]byte, input/2)}}); err != nil {
			t.Fatal(err)
		}
	}
	wait.For(t, "the file has all inputs", func() bool { return size() > 4*input })
	for _, id := range []runtime.BatchID{"a", "b", "c"} {
		if err := s.FinishBatch(t.Context(), runtime.Batch{ID: id, RunnerID: "r", State: runtime.BatchFinished}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Shrink(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A checkpoint truncates the file.
	wait.For(t, "the file has the input of one batch, and the pages that are kept", func() bool { return size() < input+(pagesKept+1024)*4096 })
	if _, _, err := s.BatchStep(t.Context(), "d", 0); err != nil {
		t.Error(err)
	}
}
