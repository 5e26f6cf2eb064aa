package accesslog

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime/linefile"
)

// A Log takes lines at once, and writes them by Run. Lines that wait for a slow disk are
// bounded: further ones are lost, which is logged.
type Log struct {
	logger *zap.Logger
	wake   chan struct{} // of capacity 1
	began  atomic.Bool   // Run was called

	// For Run alone.
	to      *linefile.File
	failing bool // the last write failed, which was logged

	mu      sync.Mutex // guards what follows
	waiting []byte
	lost    int
}

// maxWaiting is how many bytes of lines wait.
const maxWaiting = 1 << 20

// Open returns a Log that appends to the file at path, which it makes if there is none. When that was renamed or
// removed, the next lines go to a new one.
func Open(path string, logger *zap.Logger) (*Log, error) {
	to, err := linefile.Open(path, 0o640)
	if err != nil {
		return nil, fmt.Errorf("open --access-log: %w", err)
	}
	return newLog(to, logger), nil
}

// Stdout returns a Log that writes to stdout.
func Stdout(logger *zap.Logger) *Log { return newLog(linefile.Stream(os.Stdout), logger) }

func newLog(to *linefile.File, logger *zap.Logger) *Log {
	return &Log{to: to, logger: logger, wake: make(chan struct{}, 1)}
}

// Close closes the file if Run was never called. Run closes it at its end.
func (l *Log) Close() {
	if l != nil && !l.began.Load() {
		l.to.Close()
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

// Run writes lines until ctx ends, and then those that are there. A stream that nobody reads can
// hold it up for ever.
func (l *Log) Run(ctx context.Context) {
	l.began.Store(true)
	defer l.to.Close()
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
	_, err := l.to.Write(lines)
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
