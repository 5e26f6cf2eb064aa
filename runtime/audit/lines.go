package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/runtime/store"
)

const (
	mostCopies = 1000        // batches of lines that wait to be written
	endWithin  = time.Second // for so long the end of a log waits until they are
)

var errSlow = errors.New("copy the audit log: the lines are read too slowly; the database has all, but lines are missing in the copy")

// Lines copies entries, one a line, to a file or to a stream. The copy lacks entries that can't be written, and those
// that come while mostCopies wait. A line says how many: see line.
type lines struct {
	path    string    // "": stream
	stream  io.Writer // nil: a file
	failing func(error)

	copies chan []byte
	lost   atomic.Int64  // entries of which no line tells yet
	done   chan struct{} // closed by run

	// Run's.
	file *os.File // nil: it isn't open
	torn bool     // the last line may have no end
}

// newLines returns an error if the file can't be opened.
func newLines(path string, stdout io.Writer, failing func(error)) (*lines, error) {
	l := &lines{failing: failing, copies: make(chan []byte, mostCopies), done: make(chan struct{})}
	if path == "-" {
		l.stream = stdout
		return l, nil
	}
	l.path = path
	return l, l.open()
}

// add passes rows on. It never waits.
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

// end waits until all is written, but not for longer than endWithin: a stream that nobody reads keeps no server from
// stopping. Nothing may be added any more.
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
		n, err := l.write(append([]byte(note), text...))
		if err != nil {
			if n < len(note) {
				n = len(note)
				l.lost.Add(lost)
			}
			l.lost.Add(int64(bytes.Count(text[n-len(note):], []byte{'\n'})))
			err = fmt.Errorf("copy the audit log: the database has all entries, but lines are missing in the copy: %w", err)
		}
		l.failing(err)
	}
	if l.file != nil {
		_ = l.file.Close() // what was written is written
	}
}

// write returns how many bytes of text it wrote.
func (l *lines) write(text []byte) (n int, err error) {
	to := l.stream
	if to == nil {
		if err := l.open(); err != nil {
			return 0, err
		}
		to = l.file
	}
	if l.torn {
		if _, err := to.Write([]byte{'\n'}); err != nil {
			return 0, err
		}
	}
	n, err = to.Write(text)
	l.torn = n > 0 && text[n-1] != '\n'
	return n, err
}

// open opens the file, again if another one is at its path, or none: somebody renamed it.
func (l *lines) open() error {
	if l.file != nil {
		there, err := os.Stat(l.path)
		opened, err2 := l.file.Stat()
		if errors.Join(err, err2) == nil && os.SameFile(there, opened) {
			return nil
		}
		_ = l.file.Close() // what was written is written
		l.file = nil
	}
	file, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	l.file = file
	last := []byte{'\n'}
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		if _, err := file.ReadAt(last, info.Size()-1); err != nil {
			return err
		}
	}
	l.torn = last[0] != '\n' // the server that wrote it was killed, or the disk was full
	return nil
}
