package serve

import (
	"encoding/binary"
	"time"

	"github.com/rockpool/rockpool/agent"
)

const (
	segmentSize = 64 << 10 // bytes that a backlog allocates, sends and frees together
	maxSpare    = 8        // free segments kept for reuse: about the bytes of one acknowledgement

	// Sizes of terminals don't count for the budget: clients cause them, and a flood of output must
	// not displace them.
	maxSizes = 4 << 10 / agent.ResizedFrameSize
)

// A backlog holds output that wasn't acknowledged, and the sizes that the terminals got in between,
// as frames that are ready to be sent. A position is a number of frame bytes since the start. A
// backlog isn't safe for concurrent use. However, frames that from returned may be read without the
// lock while quiet is at or before their position.
type backlog struct {
	segments []segment
	spare    [][]byte // buffers of freed segments
	base     int64    // output offset of the first frame held
	end      int64    // output offset after the last frame
	head     int64    // position of the first frame held
	tail     int64    // position after the last frame
	quiet    int64    // position before which no stream reads frames any longer: buffers there may be reused

	last    time.Duration // time of the newest frame; times never decrease
	sizes   int           // number of held frames that are sizes
	acked   int64         // output offset up to which output was acknowledged
	resized time.Duration // time up to which sizes were acknowledged
}

// A segment is a buffer of contiguous frames.
type segment struct {
	at     int64 // position of buf[0]
	offset int64 // output offset of the frame there
	buf    []byte
}

// append adds a frame of output. The data must fit into one frame.
func (b *backlog) append(stream byte, at time.Duration, data []byte) {
	s := b.room(agent.OutputFrameSize + len(data))
	b.last = max(b.last, at)
	s.buf = agent.AppendOutput(s.buf, stream, b.end, b.last, data)
	b.end += int64(len(data))
}

// resize appends a size. Its time is later than that of every frame before it, because clients
// identify sizes by their time.
func (b *backlog) resize(at time.Duration, size agent.Size) {
	s := b.room(agent.ResizedFrameSize)
	b.last = max(b.last.Truncate(time.Microsecond)+time.Microsecond, at.Truncate(time.Microsecond))
	s.buf = agent.AppendResized(s.buf, b.end, b.last, size)
	b.sizes++
}

// room returns a segment with space for a frame of size bytes.
func (b *backlog) room(size int) *segment {
	last := len(b.segments) - 1
	if last < 0 || len(b.segments[last].buf)+size > segmentSize {
		next := segment{at: b.tail, offset: b.end}
		if n := len(b.spare); n > 0 {
			next.buf, b.spare = b.spare[n-1], b.spare[:n-1]
		} else if last >= 0 {
			// The first segment has the size of its first frame, since most commands print little.
			next.buf = make([]byte, 0, segmentSize)
		}
		b.segments = append(b.segments, next)
		last++
	}
	b.tail += int64(size)
	return &b.segments[last]
}

// ack frees every output frame that lies completely before offset. It frees every size that was set
// up to resized, or that has freed output after it. It returns the bytes of the freed output
// frames.
func (b *backlog) ack(offset int64, resized time.Duration) (freed int64) {
	b.acked, b.resized = max(b.acked, offset), max(b.resized, min(resized, b.last))
	for len(b.segments) > 0 {
		s := &b.segments[0]
		for b.head < s.at+int64(len(s.buf)) {
			size, length, at := frameAt(s.buf[b.head-s.at:])
			// Frames are freed in their order. A size stays until it, or output after it, was
			// acknowledged.
			if b.base+length > b.acked || length == 0 && b.base == b.acked && at > b.resized {
				return freed
			}
			if length == 0 {
				b.sizes--
			} else {
				freed += size
			}
			b.base += length
			b.head += size
		}
		if len(b.segments) == 1 && len(s.buf) < segmentSize/2 {
			// It has free space; appending continues behind the freed frames.
			break
		}
		// A stream may still be writing from a buffer whose end is after quiet, so that one isn't
		// reused.
		if cap(s.buf) >= segmentSize && len(b.spare) < maxSpare && s.at+int64(len(s.buf)) <= b.quiet {
			b.spare = append(b.spare, s.buf[:0])
		}
		b.segments = b.segments[1:]
	}
	return freed
}

// from returns the contiguous frames at a position, and the output offset after them.
func (b *backlog) from(position int64) (frames []byte, end int64) {
	end = b.end
	for i := len(b.segments) - 1; i >= 0; i-- {
		s := b.segments[i]
		if position >= s.at {
			return s.buf[position-s.at:], end
		}
		end = s.offset
	}
	return nil, end
}

// seek returns the position of the first frame that begins at offset or later. If offset is within
// a frame, rest is a frame with its remaining bytes.
func (b *backlog) seek(offset int64) (position int64, rest []byte) {
	position, at := b.head, b.base
	for position < b.tail && at < offset {
		frame, _ := b.from(position)
		size, length, _ := frameAt(frame)
		if at+length > offset {
			stream, _, time, data, err := agent.ParseOutput(frame[5:size])
			if err != nil {
				panic(err) // the agent itself encoded it
			}
			rest = agent.AppendOutput(nil, stream, offset, time, data[offset-at:])
		}
		position += size
		at += length
	}
	return position, rest
}

// frameAt returns the size of the first frame in b and the length of its data, in bytes. A size of
// a terminal has no data; for it, resized is its time.
func frameAt(b []byte) (size, length int64, resized time.Duration) {
	size = 4 + int64(binary.BigEndian.Uint32(b))
	if agent.Kind(b[4]) != agent.KindResized {
		return size, size - agent.OutputFrameSize, 0
	}
	_, resized, _, err := agent.ParseResized(b[5:size])
	if err != nil {
		panic(err) // the agent itself encoded it
	}
	return size, 0, resized
}
