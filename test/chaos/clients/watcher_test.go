package clients

import (
	"fmt"
	"testing"
)

// TestWatchersRereadTheSame goes back to an earlier cursor, and reads the same again.
func TestWatchersRereadTheSame(t *testing.T) {
	w := &watcher{}
	read := func(record int) {
		w.take(event{Type: "ExecutionOutput", Stream: "STDOUT", Cursor: fmt.Sprint(record), Base64: fmt.Appendf(nil, "0%014d\n", record)})
	}
	for record := range 3 {
		read(record)
	}
	end := w.reading
	if w.rewind(w.marks[0]); *w.cursor != "0" || w.reading != w.marks[0].reading || w.reading == end {
		t.Errorf("at %s: %+v", *w.cursor, w.reading)
	}
	if read(1); w.reading != w.marks[1].reading {
		t.Errorf("read again: %+v, and before %+v", w.reading, w.marks[1].reading)
	}
	if read(2); w.reading != end {
		t.Errorf("read to the end: %+v, and before %+v", w.reading, end)
	}
}
