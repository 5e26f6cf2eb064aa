package routes

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime/disk"
	"github.com/rockpool/rockpool/runtime/syncs"
)

// A Log is the access log. It queues lines without blocking, and Run writes them. The queue is bounded: if the disk is
// too slow, further lines are lost, which is logged.
type Log struct {
	logger *zap.Logger
	wake   syncs.Hint
	began  atomic.Bool // whether Run was called

	// Only for Run.
	to      *disk.LineFile
	failing bool // the last write failed and was logged

	mu      sync.Mutex // guards the fields below
	waiting []byte
	lost    int
}

// maxWaiting bounds the queued lines, in bytes.
const maxWaiting = 1 << 20

// OpenLog returns a Log that appends to the file at path. It creates the file if it doesn't exist.
// After the file was renamed or removed, the next lines go to a new one.
func OpenLog(path string, logger *zap.Logger) (*Log, error) {
	to, err := disk.OpenLines(path, 0o640)
	if err != nil {
		return nil, fmt.Errorf("open --access-log: %w", err)
	}
	return newLog(to, logger), nil
}

// StdoutLog returns a Log that writes to stdout.
func StdoutLog(logger *zap.Logger) *Log { return newLog(disk.StreamLines(os.Stdout), logger) }

// newLog returns a Log that writes to a file, and owns it.
func newLog(to *disk.LineFile, logger *zap.Logger) *Log {
	return &Log{to: to, logger: logger, wake: syncs.NewHint()}
}

// Close closes the file if Run was never called; otherwise Run closes it. A nil Log does nothing.
func (l *Log) Close() {
	if l != nil && !l.began.Load() {
		l.to.Close()
	}
}

// add queues a line.
func (l *Log) add(text []byte) {
	l.mu.Lock()
	if len(l.waiting)+len(text) < maxWaiting {
		l.waiting = append(append(l.waiting, text...), '\n')
	} else {
		l.lost++
	}
	l.mu.Unlock()
	l.wake.Send()
}

// Run writes lines until ctx ends, and then the remaining ones. If nothing reads stdout, it can
// block forever.
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

// write writes the queued lines and returns their buffer for reuse. Meanwhile, spare collects new lines.
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
		l.logger.Warn("access log lines were lost, because writing is too slow", zap.Int("lines", lost))
	}
	if err != nil && !l.failing {
		l.logger.Error("the access log can't be written; lines are lost", zap.Error(err))
	}
	l.failing = err != nil
	if cap(lines) > maxWaiting/8 { // don't keep a large buffer after a burst
		return nil
	}
	return lines
}
