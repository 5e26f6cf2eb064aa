package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/runtime/disk"
	"github.com/rockpool/rockpool/runtime/store"
)

const (
	mostCopies = 1000        // queued batches of lines
	endWithin  = time.Second // how long end waits for them
)

var errSlow = errors.New("copy the audit log: the file or stream accepts lines too slowly, so lines are missing in the copy; the database has all of them")

// lines copies entries to a file or a stream, one per line. The copy misses entries that can't be
// written, and entries that arrive while mostCopies batches are queued. A line then says how many:
// see line.
type lines struct {
	to      *disk.LineFile // owned by run
	failing func(error)    // called with each change of the copy's fault; nil means it works

	copies chan []byte   // capacity mostCopies; closed by end
	lost   atomic.Int64  // missing entries that no line counts yet
	done   chan struct{} // closed by run
}

// newLines returns an error if the file can't be opened.
func newLines(path string, stdout io.Writer, failing func(error)) (*lines, error) {
	to, err := disk.StreamLines(stdout), error(nil)
	if path != "-" {
		to, err = disk.OpenLines(path, 0o600)
	}
	return &lines{to: to, failing: failing, copies: make(chan []byte, mostCopies), done: make(chan struct{})}, err
}

// add queues rows. It never blocks.
func (l *lines) add(rows []store.AuditRow) {
	var text []byte
	for _, r := range rows {
		text = append(append(text, r.Value...), '\n')
	}
	select {
	case l.copies <- text:
	default:
		l.lost.Add(int64(len(rows)))
		l.failing(errSlow)
	}
}

// end waits until everything is written, but at most endWithin, because a stream that nobody reads
// must not keep the server from stopping. Don't call add afterwards.
func (l *lines) end() {
	close(l.copies)
	select {
	case <-l.done:
	case <-time.After(endWithin):
	}
}

// run writes until end is called. It closes the file.
func (l *lines) run() {
	defer close(l.done)
	for text := range l.copies {
		lost, note := l.lost.Swap(0), ""
		if lost > 0 {
			note = fmt.Sprintf("{\"lost\": %d}\n", lost)
		}
		n, err := l.to.Write(append([]byte(note), text...))
		if err != nil {
			if n < len(note) {
				n = len(note)
				l.lost.Add(lost)
			}
			l.lost.Add(int64(bytes.Count(text[n-len(note):], []byte{'\n'})))
			err = fmt.Errorf("copy the audit log: lines are missing in the copy; the database has all entries: %w", err)
		}
		if err != nil || l.lost.Load() == 0 { // otherwise add has reported that it falls behind
			l.failing(err)
		}
	}
	l.to.Close()
}
