package output

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// ErrPosition says that a position isn't between two records.
var ErrPosition = errors.New("no such position in the output")

// ErrBeyond says that a position is after the log's end. It wraps ErrPosition.
var ErrBeyond = fmt.Errorf("%w: it ends before that", ErrPosition)

// A Reader reads one log, record by record. It is for one goroutine. Close it.
type Reader struct {
	location Location
	file     Bytes  // nil until the first read
	position int64  // of the next record
	buffer   []byte // bytes from position on; part of backing
	backing  []byte
	peeked   Record // the record at position, decoded and checked
	size     int    // its size on disk, 0 before it was decoded
	// limit returns how many bytes may be read, whether they are all of the log, and a channel that
	// is closed when this changes.
	limit func() (size int64, ended bool, changed <-chan struct{})
}

// newReader returns a reader from a position, which must be a record's beginning or the end. For
// limit, see [Reader].
func newReader(at Location, position int64, limit func() (int64, bool, <-chan struct{})) (*Reader, error) {
	size, _, _ := limit()
	switch {
	case position < 0:
		return nil, ErrPosition
	case position > size:
		return nil, ErrBeyond
	}
	r := &Reader{location: at, position: position, limit: limit}
	if position == 0 || position == size {
		return r, nil
	}
	// A position inside a record isn't followed by a whole record.
	if _, err := r.Peek(); err != nil {
		_ = r.Close() // the first error counts
		if errors.Is(err, io.EOF) || errors.Is(err, errTorn) {
			return nil, ErrPosition
		}
		return nil, err
	}
	return r, nil
}

// Torn reports whether the log has bytes after the last whole record. Call it after io.EOF.
func (r *Reader) Torn() bool {
	size, _, _ := r.limit()
	return r.position < size
}

// Position returns the position after the last record read.
func (r *Reader) Position() int64 { return r.position }

// Wait waits until TryNext has a record or the end.
func (r *Reader) Wait(ctx context.Context) error {
	for {
		size, ended, changed := r.limit()
		if r.position < size || ended {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ErrWait says that there is no further record yet.
var ErrWait = errors.New("no output yet")

// TryNext returns the next record; its Data is valid until the next call. It returns ErrWait if there is none yet, and
// io.EOF when the execution has ended and there is no more record, even if a power cut damaged the log's end.
func (r *Reader) TryNext() (Record, error) {
	record, n, err := r.peek()
	if err == nil {
		r.position += int64(n)
		r.buffer, r.size = r.buffer[n:], 0
	}
	return record, err
}

// Peek is like TryNext but doesn't advance.
func (r *Reader) Peek() (Record, error) {
	record, _, err := r.peek()
	return record, err
}

// peek returns the next record and its size on disk. It decodes each record once, because the checksum of
// 32 KiB costs as much as a copy.
func (r *Reader) peek() (Record, int, error) {
	if r.size > 0 {
		return r.peeked, r.size, nil
	}
	for {
		record, need, err := decode(r.buffer)
		if err == nil {
			r.peeked, r.size = record, need
			return record, need, nil
		}
		size, ended, _ := r.limit()
		if len(r.buffer) < need && r.position+int64(len(r.buffer)) < size {
			n, err := r.fill(need, size)
			if err != nil {
				return Record{}, 0, fmt.Errorf("read output: %w", err)
			}
			if n > 0 {
				continue
			}
		}
		switch {
		case ended:
			return Record{}, 0, io.EOF
		case r.position == size:
			return Record{}, 0, ErrWait
		default: // bytes that were announced are missing or damaged
			return Record{}, 0, errTorn
		}
	}
}

// Sizes of a reader's buffer, in bytes.
const (
	smallBuffer = 4 << 10                    // for subscribers that follow the output
	largeBuffer = 2 * (headerSize + MaxData) // for at least one whole record
)

// fill reads on into the buffer, not past size, until it has need bytes or there are no more. A
// reader that reads little at a time keeps a small buffer, so that a thousand subscribers of a
// quiet program stay cheap.
func (r *Reader) fill(need int, size int64) (int, error) {
	if r.file == nil {
		file, err := r.location.Open()
		if err != nil {
			return 0, err
		}
		r.file = file
	}
	have := len(r.buffer)
	room := smallBuffer
	if left := size - r.position; left > smallBuffer {
		room = int(min(left, largeBuffer))
	}
	buffer := r.backing
	if room = max(room, need); len(buffer) < room {
		buffer = make([]byte, room)
		r.backing = buffer
	}
	copy(buffer, r.buffer) // the two may overlap
	end := min(int64(len(buffer)), size-r.position)
	n, err := r.file.ReadAt(buffer[have:end], r.position+int64(have))
	r.buffer = buffer[:have+n]
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

func (r *Reader) rewind() { r.position, r.buffer, r.size = 0, nil, 0 }

// Close closes the file.
func (r *Reader) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}
