package accesslog

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
)

// A Log takes lines at once, and writes them by Run. Lines that wait for a slow disk are
// bounded: further ones are lost, which is logged.
type Log struct {
	path   string // "": out is stdout
	logger *zap.Logger
	wake   chan struct{} // of capacity 1

	// For Run alone.
	out     *os.File
	checked time.Time // when path was compared with out
	failing bool      // the last write failed, which was logged

	mu      sync.Mutex // guards what follows
	waiting []byte
	lost    int
}

// Bounds of a Log.
const (
	maxWaiting = 1 << 20     // bytes
	checkEvery = time.Second // whether the file was renamed
)

// Open returns a Log that appends to the file at path, which it makes where there is none.
func Open(path string, logger *zap.Logger) (*Log, error) {
	l := &Log{path: path, logger: logger, wake: make(chan struct{}, 1)}
	return l, l.open()
}

// Stdout returns a Log that writes to stdout.
func Stdout(logger *zap.Logger) *Log {
	return &Log{out: os.Stdout, logger: logger, wake: make(chan struct{}, 1)}
}

func (l *Log) open() error {
	out, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("open --access-log: %w", err)
	}
	l.Close()
	l.out, l.checked = out, time.Now()
	return nil
}

// Close closes the file. Run must have ended, or not have begun.
func (l *Log) Close() {
	if l != nil && l.path != "" && l.out != nil {
		_ = l.out.Close()
	}
}

// add adds a line.
func (l *Log) add(text []byte) {
	l.mu.Lock()
	if len(l.waiting)+len(text) < maxWaiting {
		l.waiting = append(append(l.waiting, text...), '\n')
	} else {
		l.lost++
	}
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Run writes lines until ctx ends, and then those that are there. Where the file was renamed
// or removed, it goes on in a new one within a second.
func (l *Log) Run(ctx context.Context) {
	var spare []byte
	for {
		select {
		case <-l.wake:
			spare = l.write(spare)
		case <-ctx.Done():
			l.write(spare)
			return
		}
	}
}

// write writes what waits, and returns the buffer that it was in. Spare takes what comes
// meanwhile.
func (l *Log) write(spare []byte) []byte {
	l.mu.Lock()
	lines, lost := l.waiting, l.lost
	l.waiting, l.lost = spare[:0], 0
	l.mu.Unlock()
	if len(lines) == 0 {
		return lines
	}
	err := l.follow()
	if err == nil {
		_, err = l.out.Write(lines)
	}
	if lost > 0 {
		l.logger.Warn("lines of the access log were lost, because it can't be written fast enough", zap.Int("lines", lost))
	}
	if err != nil && !l.failing {
		l.logger.Error("the access log can't be written; lines are lost", zap.Error(err))
	}
	l.failing = err != nil
	if cap(lines) > maxWaiting/8 { // one burst isn't kept for ever
		return nil
	}
	return lines
}

// follow opens the file again where another one, or none, is at its path.
func (l *Log) follow() error {
	if l.path == "" || time.Since(l.checked) < checkEvery {
		return nil
	}
	l.checked = time.Now()
	there, err := os.Stat(l.path)
	if err == nil {
		if here, err := l.out.Stat(); err == nil && os.SameFile(there, here) {
			return nil
		}
	}
	return l.open()
}
