package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/runtime/linefile"
	"github.com/rockpool/rockpool/runtime/store"
)

const (
	mostCopies = 1000        // batches of lines that wait to be written
	endWithin  = time.Second // how long the end of a log waits for them
)

var errSlow = errors.New("copy the audit log: the lines are read too slowly; the database has all, but lines are missing in the copy")

// lines copies entries to a file or to a stream, one a line. The copy lacks entries that can't be written, and entries
// that come while mostCopies batches wait. Then a line says how many are missing: see line.
type lines struct {
	to      *linefile.File // run's
	failing func(error)

	copies chan []byte
	lost   atomic.Int64  // entries that are missing, and that no line counts yet
	done   chan struct{} // closed by run
}

// newLines returns an error if the file can't be opened.
func newLines(path string, stdout io.Writer, failing func(error)) (*lines, error) {
	to, err := linefile.Stream(stdout), error(nil)
	if path != "-" {
		to, err = linefile.Open(path, 0o600)
	}
	return &lines{to: to, failing: failing, copies: make(chan []byte, mostCopies), done: make(chan struct{})}, err
}

// add queues rows. It never waits.
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

// end waits until all is written, at most for endWithin: a stream that nobody reads must not keep a server from stopping.
// Don't call add after it.
func (l *lines) end() {
	close(l.copies)
	timer := time.NewTimer(endWithin)
	defer timer.Stop()
	select {
	case <-l.done:
	case <-timer.C:
	}
}

// run writes until end is called.
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
			err = fmt.Errorf("copy the audit log: the database has all entries, but lines are missing in the copy: %w", err)
		}
		if err != nil || l.lost.Load() == 0 { // else add has told that it falls behind
			l.failing(err)
		}
	}
	l.to.Close()
}
