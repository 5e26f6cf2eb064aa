package output

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rockpool/rockpool/runtime"
)

// A Content is the output that a log held when it was opened, as bytes of one stream, or of both in the
// order in which they were printed. It is an io.ReadSeeker that reads the log on demand and buffers no
// more of it than a Reader. It is for one goroutine. Close it.
type Content struct {
	reader *Reader
	stream runtime.Stream // 0 for both
	size   int64
	end    int64 // the offset after the last record
	lost   int64

	at       int64  // position of the next Read
	next     int64  // position of data's first byte
	data     []byte // of the record being read; owned by the reader
	returned int64  // output offset after the last record that Next returned
}

// Content opens the present content; stream 0 means both. It reads the log once to count, and returns
// ctx's cause if ctx ends meanwhile.
func (l *Log) Content(ctx context.Context, stream runtime.Stream) (*Content, error) {
	size, _, _ := l.limit()
	return newContent(ctx, l.location, size, stream)
}

// OpenContent opens the log of a finished execution as Log.Content does. A missing log is empty.
func OpenContent(ctx context.Context, at Location, stream runtime.Stream) (*Content, error) {
	r, err := OpenReader(at, 0)
	if err != nil {
		return nil, err
	}
	size, _, _ := r.limit()
	return newContent(ctx, at, size, stream)
}

// newContent returns the content of a stream in the first size bytes of a log. It reads the whole
// log once, for the content's size and what is missing.
func newContent(ctx context.Context, at Location, size int64, stream runtime.Stream) (*Content, error) {
	reader, err := newReader(at, 0, func() (int64, bool, <-chan struct{}) { return size, true, nil })
	if err != nil {
		return nil, err
	}
	c := &Content{reader: reader, stream: stream}
	if err := c.count(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// count adds up the stream's size and the lost bytes, then rewinds the reader.
func (c *Content) count(ctx context.Context) error {
	for {
		record, err := c.reader.TryNext()
		if errors.Is(err, io.EOF) {
			c.reader.rewind()
			return nil
		}
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		c.lost += record.Offset - c.end
		c.end = record.End()
		if c.of(record) {
			c.size += int64(len(record.Data))
		}
	}
}

// of reports whether the record's bytes belong to the content; a terminal size has none.
func (c *Content) of(record Record) bool { return c.stream == 0 || record.Stream == c.stream }

// Size returns the number of bytes to read.
func (c *Content) Size() int64 { return c.size }

// End returns the output offset after the last record, of both streams.
func (c *Content) End() int64 { return c.end }

// Lost returns how many bytes before End, of both streams, are missing from the log.
func (c *Content) Lost() int64 { return c.lost }

// Seek implements io.Seeker. It doesn't read.
func (c *Content) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += c.at
	case io.SeekEnd:
		offset += c.size
	}
	if offset < 0 {
		return 0, fmt.Errorf("seek output: to %d", offset)
	}
	c.at = offset
	return offset, nil
}

// Read implements io.Reader. It returns io.ErrUnexpectedEOF if the log has become shorter.
func (c *Content) Read(p []byte) (int, error) {
	if c.at >= c.size {
		return 0, io.EOF
	}
	// After a seek backward, the log is read from its beginning.
	if c.at < c.next {
		c.reader.rewind()
		c.next, c.data = 0, nil
	}
	for c.at >= c.next+int64(len(c.data)) {
		record, err := c.reader.TryNext()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, err
		}
		if c.of(record) {
			c.next += int64(len(c.data))
			c.data = record.Data
		}
	}
	n := copy(p, c.data[c.at-c.next:])
	c.at += int64(n)
	return n, nil
}

// Next returns the next record, including terminal sizes, and how many bytes of both streams are missing
// before it. After the last record it returns io.EOF. Use it instead of Read, not together with it. The
// record's Data is valid until the next call.
func (c *Content) Next() (record Record, lost int64, err error) {
	for {
		record, err = c.reader.TryNext()
		if err != nil {
			return record, lost, err
		}
		lost += record.Offset - c.returned
		c.returned = record.End()
		if record.Resized() || c.of(record) {
			return record, lost, nil
		}
	}
}

// Close closes the log's file.
func (c *Content) Close() error { return c.reader.Close() }
