// Package output stores what executions print: one log per execution, with one writer and any number of
// readers, which may start at any position at any time.
//
// A record is durable against a SIGKILL of the server once Flush has returned. Readers get every record
// once, in order. A log holds nothing in memory except its size, so slow readers cost no memory.
package output

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// A Log is the output log of one running execution. One goroutine writes; Reader and Content may be
// called concurrently.
type Log struct {
	location Location
	quota    *Quota        // nil if there is none
	file     Written       // nil until the first record; owned by the writer
	scratch  []byte        // records to flush; owned by the writer
	end      int64         // output offset after the last added record; owned by the writer
	first    time.Duration // of a recovered log: time of its first output
	printed  bool          // of a recovered log: it has output
	torn     bool          // of a recovered log: its file had more than whole records
	sizes    terminal      // owned by the writer

	mu      sync.Mutex // guards the fields below
	size    int64      // bytes of whole records in the file
	ended   bool
	changed chan struct{} // closed and replaced when size or ended changes
}

// A terminal is the writer's view of its execution's terminal.
type terminal struct {
	size    runtime.TerminalSize // the last one added
	at      time.Duration        // when it was set
	count   int                  // number of sizes added
	written runtime.TerminalSize // the last one in the file
	lost    bool                 // size was lost with a failed Flush
}

// MaxSizes bounds the terminal sizes in a log; more are left out. The output limit doesn't bound them.
const MaxSizes = 100_000

// FlushBytes is how many pending bytes make a log's writer flush.
const FlushBytes = 64 << 10

// New returns the log of a new execution. Its file is created with the first record, so an execution
// without output has none.
func New(at Location) *Log {
	return &Log{location: at, changed: make(chan struct{})}
}

// Within charges the log's disk use to a quota, which also limits it. The writer calls it once,
// before the first Flush.
func (l *Log) Within(quota *Quota) *Log {
	l.quota = quota
	quota.Add(DiskBytes(l.size))
	return l
}

// Recover returns the log of an execution that an earlier server left. It truncates the file after
// the last whole record; the next record follows there. A missing file is an empty log.
func Recover(at Location) (*Log, error) {
	l := New(at)
	file, err := at.Reopen()
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, fmt.Errorf("recover output: %w", err)
	}
	r := &Reader{file: file, limit: func() (int64, bool, <-chan struct{}) { return 1 << 62, true, nil }}
	for {
		record, err := r.TryNext()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("recover output: %w", err), file.Close())
		}
		if record.Resized() {
			l.sizes = terminal{size: record.Size, at: record.Since, count: l.sizes.count + 1, written: record.Size}
		} else if !l.printed {
			l.first, l.printed = record.Since, true
		}
		l.size, l.end = r.Position(), record.End()
	}
	// An interrupted write left part of a record. The agent still has that output.
	if size, err := at.Size(); err == nil {
		l.torn = size > l.size
	}
	if err := file.Truncate(l.size); err != nil {
		return nil, errors.Join(fmt.Errorf("recover output: %w", err), file.Close())
	}
	l.file = file
	return l, nil
}

// Skip records that output before offset was lost: the next record starts there. Only the writer
// may call it.
func (l *Log) Skip(offset int64) { l.end = max(l.end, offset) }

// First returns when the first output of a recovered log was printed, since the execution's start, and
// whether there is any. Only the writer may call it.
func (l *Log) First() (time.Duration, bool) { return l.first, l.printed }

// Resized returns when the last added terminal size was set, since the execution's start, or 0. Only the
// writer may call it.
func (l *Log) Resized() time.Duration { return l.sizes.at }

// Size returns the size of the log's file in bytes. Only the writer may call it.
func (l *Log) Size() int64 { return l.size }

// Torn reports whether a recovered log's file had more than whole records. Only the writer may call it.
func (l *Log) Torn() bool { return l.torn }

// Bytes returns the log's disk use in bytes. Only the writer may call it.
func (l *Log) Bytes() int64 { return DiskBytes(l.size) }

// Next returns the output offset after the last added record. Only the writer may call it.
func (l *Log) Next() int64 { return l.end }

// Add adds a record for the next Flush; the caller may reuse its Data afterwards. Its offset must not be
// before the last record's end; a gap means that the output between was lost. A terminal size beyond
// MaxSizes is left out. One that was lost with a failed Flush is added again before the next output.
// Only the writer may call it.
func (l *Log) Add(r Record) error {
	if r.Offset < l.end || r.Resized() == (len(r.Data) > 0) || len(r.Data) > MaxData || r.Resized() && !possible(r.Size) {
		return fmt.Errorf("append output: record of %d bytes at %d, after %d", len(r.Data), r.Offset, l.end)
	}
	switch {
	case r.Resized() && l.sizes.count >= MaxSizes:
		l.sizes.at = r.Since
		return nil
	case r.Resized():
		l.sizes.size, l.sizes.at = r.Size, r.Since
		l.sizes.count++
	case l.sizes.lost:
		l.sizes.lost = false
		l.scratch = encode(l.scratch, Record{Offset: r.Offset, Since: r.Since, Size: l.sizes.size})
	}
	l.end = r.End()
	l.scratch = encode(l.scratch, r)
	return nil
}

// Pending returns how many bytes the next Flush will write.
func (l *Log) Pending() int { return len(l.scratch) }

// Flush writes all added records, or none. After an error they are lost, and readers see the gap.
// The error is ErrQuota if the quota is used up. Only the writer may call it.
func (l *Log) Flush() error {
	if len(l.scratch) == 0 {
		return nil
	}
	defer func() { l.scratch = l.scratch[:0] }()
	// Until the write has succeeded, the last size counts as lost.
	l.sizes.lost = l.sizes.size != l.sizes.written
	more := DiskBytes(l.size+int64(len(l.scratch))) - DiskBytes(l.size)
	if !l.quota.take(more) {
		return fmt.Errorf("append output: %w", ErrQuota)
	}
	if err := l.write(); err != nil {
		l.quota.Add(-more)
		return fmt.Errorf("append output: %w", err)
	}
	l.sizes.written, l.sizes.lost = l.sizes.size, false
	l.mu.Lock()
	defer l.mu.Unlock()
	l.size += int64(len(l.scratch))
	l.wake()
	return nil
}

// write appends the encoded records to the file, which the first write creates.
func (l *Log) write() error {
	if l.file == nil {
		file, err := l.location.Create()
		if err != nil {
			return err
		}
		l.file = file
	}
	// At the size, not at the file's end: this overwrites what a write that failed on a full disk left.
	_, err := l.file.WriteAt(l.scratch, l.size)
	return err
}

// End ends the log, and readers see its end. Only the writer may call it.
func (l *Log) End() error {
	l.mu.Lock()
	l.ended = true
	l.wake()
	l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	// Remove what a failed write left after the last record.
	return errors.Join(l.file.Truncate(l.size), l.file.Close())
}

// wake wakes the waiting readers. l.mu must be held.
func (l *Log) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// limit returns how far a reader may read, whether that is the end, and a channel that is closed
// when this changes.
func (l *Log) limit() (int64, bool, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size, l.ended, l.changed
}

// Reader returns a reader from a position: 0, or the Position of another reader of this log. It returns
// ErrPosition for any other one.
func (l *Log) Reader(position int64) (*Reader, error) {
	return newReader(l.location, position, l.limit)
}

// OpenReader returns a reader of the log of a finished execution. A missing file is an empty log.
func OpenReader(at Location, position int64) (*Reader, error) {
	size, err := at.Size()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read output: %w", err)
	}
	return newReader(at, position, func() (int64, bool, <-chan struct{}) { return size, true, nil })
}
