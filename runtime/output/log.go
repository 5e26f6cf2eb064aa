// Package output keeps what executions print: one log per execution, one
// writer, and any number of readers that start anywhere and come at any time,
// before, during and after the execution.
//
// A record is in the log once Flush returned: it survives a SIGKILL of the
// server. Readers get every record once, in order. The log holds nothing in
// memory but its size, so a slow reader costs none.
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

// A Log is one execution's log while the execution runs. One goroutine writes;
// any number may open readers.
type Log struct {
	place   Place
	quota   *Quota        // nil: none
	file    Written       // nil until the first record; used by the writer only
	scratch []byte        // the writer's: records to be flushed
	end     int64         // the writer's: the offset after the last record that was added
	first   time.Duration // of a recovered log: when its first output was printed
	printed bool          // of a recovered log: it has output
	torn    bool          // of a recovered log: something was cut off
	sizes   terminal      // the writer's

	mu      sync.Mutex // guards what follows
	size    int64      // bytes of whole records in the file
	ended   bool
	changed chan struct{} // closed and replaced when size or ended changes
}

// A terminal is what a writer knows of its execution's.
type terminal struct {
	size    runtime.TerminalSize // the last that was added
	at      time.Duration        // when that was set
	count   int                  // how many were added
	written runtime.TerminalSize // the last that is in the file
	lost    bool                 // size went with a failed Flush
}

// MaxSizes is how many sizes of a terminal a log takes; more are left out. They
// are not bounded by what a program may print.
const MaxSizes = 100_000

// FlushBytes is how much output a log's writer has written at once.
const FlushBytes = 64 << 10

// New returns the log of a new execution. What has it is made with the first
// record: one that prints nothing costs none.
func New(at Place) *Log {
	return &Log{place: at, changed: make(chan struct{})}
}

// Within has what the log takes on the disk counted, and bounded, by a quota. It
// is called once, by the writer, before the first Flush.
func (l *Log) Within(quota *Quota) *Log {
	l.quota = quota
	quota.Add(DiskBytes(l.size))
	return l
}

// Recover returns the log of an execution that a dead server left. It cuts off
// what isn't a whole record; the next record goes on from there. No file is
// an empty log.
func Recover(at Place) (*Log, error) {
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
	if size, err := at.Size(); err == nil {
		l.torn = size > l.size
	}
	if err := file.Truncate(l.size); err != nil {
		return nil, errors.Join(fmt.Errorf("recover output: %w", err), file.Close())
	}
	l.file = file
	return l, nil
}

// Skip says that what is before offset was lost: the next record comes from
// there. For the writer only.
func (l *Log) Skip(offset int64) { l.end = max(l.end, offset) }

// First returns when the first output of a recovered log was printed, since the
// execution's start, and whether there is any. For the writer only.
func (l *Log) First() (time.Duration, bool) { return l.first, l.printed }

// Resized returns when the last size that was added was set, since the
// execution's start; 0 if there is none. For the writer only.
func (l *Log) Resized() time.Duration { return l.sizes.at }

// Size returns how many bytes the log's file has. For the writer only.
func (l *Log) Size() int64 { return l.size }

// Torn reports whether a recovered log's file had more than whole records. For the
// writer only.
func (l *Log) Torn() bool { return l.torn }

// Bytes returns what the log takes on the disk. For the writer only.
func (l *Log) Bytes() int64 { return DiskBytes(l.size) }

// Next returns the offset after the last record that was added: where the
// writer goes on. For the writer only.
func (l *Log) Next() int64 { return l.end }

// Add adds a record to what the next Flush writes; its Data may be used again
// afterwards. Its offset must not fall back behind the last record's end; a
// gap says that what lies between was lost. A size beyond MaxSizes is left out;
// one that was lost with a failed Flush comes again before the next output. For
// the writer only.
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

// Pending returns how many bytes the next Flush writes.
func (l *Log) Pending() int { return len(l.scratch) }

// Flush writes what was added, all or none: after an error those records are
// lost, which readers learn from the gap; it is ErrQuota where the quota had no
// room. For the writer only.
func (l *Log) Flush() error {
	if len(l.scratch) == 0 {
		return nil
	}
	defer func() { l.scratch = l.scratch[:0] }()
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

func (l *Log) write() error {
	if l.file == nil {
		file, err := l.place.Create()
		if err != nil {
			return err
		}
		l.file = file
	}
	// At the size, not at the file's end: a write that a full disk cut short is
	// overwritten by the next one.
	_, err := l.file.WriteAt(l.scratch, l.size)
	return err
}

// End says that nothing more comes: readers see the end. For the writer only.
func (l *Log) End() error {
	l.mu.Lock()
	l.ended = true
	l.wake()
	l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	// What a failed append left behind the last record goes.
	return errors.Join(l.file.Truncate(l.size), l.file.Close())
}

// wake tells the waiting readers; l.mu is held.
func (l *Log) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// limit tells a reader how far it may read, whether that is the end, and what
// is closed when this changes.
func (l *Log) limit() (int64, bool, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size, l.ended, l.changed
}

// Reader returns a reader that begins at a position that another reader of
// this log was at, or at 0. ErrPosition means that it is no such position.
func (l *Log) Reader(position int64) (*Reader, error) {
	return newReader(l.place, position, l.limit)
}

// OpenReader returns a reader of the log of an execution that has ended. No
// file is an empty log.
func OpenReader(at Place, position int64) (*Reader, error) {
	size, err := at.Size()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read output: %w", err)
	}
	return newReader(at, position, func() (int64, bool, <-chan struct{}) { return size, true, nil })
}
