package serve

import (
	"encoding/binary"
	"time"

	"github.com/rockpool/rockpool/agent"
)

const (
	segmentSize = 64 << 10 // how much of a backlog is allocated, sent and freed at once
	maxSpare    = 8        // segments that are kept for what comes: what a client acknowledges at once

	// Sizes of terminals are held beside the budget: the client sets them,
	// and they must not be lost when a program floods.
	maxSizes = 4 << 10 / agent.ResizedFrameSize
)

// A backlog is the output that wasn't acknowledged yet, and the sizes that
// terminals got in between, as the frames in which it is sent. A place in it is a position: the number of frame bytes before it
// since the start. It is not safe for concurrent use, but what from returned
// may be read as long as quiet isn't moved beyond it.
type backlog struct {
	segments []segment
	spare    [][]byte // of segments that were freed
	base     int64    // output offset of the first frame that is held
	end      int64    // output offset after the last
	head     int64    // position of the first frame that is held
	tail     int64    // position after the last
	quiet    int64    // position before which no stream reads what from returned

	last    time.Duration // of the newest frame; none is older than the one before it
	sizes   int           // frames held that are sizes
	acked   int64         // output offset before which everything was acknowledged
	resized time.Duration // until when sizes were
}

type segment struct {
	at     int64 // position of buf[0]
	offset int64 // output offset of the frame there
	buf    []byte
}

func (b *backlog) append(stream byte, at time.Duration, data []byte) {
	s := b.room(agent.OutputFrameSize + len(data))
	b.last = max(b.last, at)
	s.buf = agent.AppendOutput(s.buf, stream, b.end, b.last, data)
	b.end += int64(len(data))
}

// resize appends a size. It is later than everything before it: clients know
// sizes by their time.
func (b *backlog) resize(at time.Duration, size agent.Size) {
	s := b.room(agent.ResizedFrameSize)
	b.last = max(b.last.Truncate(time.Microsecond)+time.Microsecond, at.Truncate(time.Microsecond))
	s.buf = agent.AppendResized(s.buf, b.end, b.last, size)
	b.sizes++
}

// room returns the segment that a frame of size bytes is to be appended to.
func (b *backlog) room(size int) *segment {
	last := len(b.segments) - 1
	if last < 0 || len(b.segments[last].buf)+size > segmentSize {
		next := segment{at: b.tail, offset: b.end}
		if n := len(b.spare); n > 0 {
			next.buf, b.spare = b.spare[n-1], b.spare[:n-1]
		} else if last >= 0 {
			// The first is made to measure, since most commands print little.
			next.buf = make([]byte, 0, segmentSize)
		}
		b.segments = append(b.segments, next)
		last++
	}
	b.tail += int64(size)
	return &b.segments[last]
}

// ack forgets every output frame that lies before offset as a whole, and every
// size that was set until resized or has such output behind it. It returns the
// number of bytes of output frames that were freed.
func (b *backlog) ack(offset int64, resized time.Duration) (freed int64) {
	b.acked, b.resized = max(b.acked, offset), max(b.resized, min(resized, b.last))
	for len(b.segments) > 0 {
		s := &b.segments[0]
		for b.head < s.at+int64(len(s.buf)) {
			size, length, at := frameAt(s.buf[b.head-s.at:])
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
			// It still has room; appending goes on behind what was freed.
			break
		}
		if cap(s.buf) >= segmentSize && len(b.spare) < maxSpare && s.at+int64(len(s.buf)) <= b.quiet {
			b.spare = append(b.spare, s.buf[:0])
		}
		b.segments = b.segments[1:]
	}
	return freed
}

// from returns frames from a position on, as far as they lie together, and
// the output offset after them.
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

// seek returns the position of the first frame that begins at offset or after
// it, and the rest of the frame that offset cuts, if it cuts one.
func (b *backlog) seek(offset int64) (position int64, rest []byte) {
	position, at := b.head, b.base
	for position < b.tail && at < offset {
		frame, _ := b.from(position)
		size, length, _ := frameAt(frame)
		if at+length > offset {
			stream, _, time, data, err := agent.ParseOutput(frame[5:size])
			if err != nil {
				panic(err) // we made it
			}
			rest = agent.AppendOutput(nil, stream, offset, time, data[offset-at:])
		}
		position += size
		at += length
	}
	return position, rest
}

// frameAt returns the size of the frame that b begins with and that of its
// data; a terminal's size has none, but the time at which it was set.
func frameAt(b []byte) (size, length int64, resized time.Duration) {
	size = 4 + int64(binary.BigEndian.Uint32(b))
	if agent.Kind(b[4]) != agent.KindResized {
		return size, size - agent.OutputFrameSize, 0
	}
	_, resized, _, err := agent.ParseResized(b[5:size])
	if err != nil {
		panic(err) // we made it
	}
	return size, 0, resized
}

// withoutSizes returns the frames for a client that doesn't take sizes.
func withoutSizes(frames []byte) []byte {
	var kept []byte
	for rest := frames; len(rest) > 0; {
		size, length, _ := frameAt(rest)
		if length > 0 {
			kept = append(kept, rest[:size]...)
		}
		rest = rest[size:]
	}
	return kept
}
