package serve

import (
	"encoding/binary"
	"time"

	"github.com/rockpool/rockpool/agent"
)

const (
	segmentSize = 64 << 10 // how much of a backlog is allocated, sent and freed at once
	maxSpare    = 8        // segments that are kept for what comes: what a client acknowledges at once
)

// A backlog is the output that wasn't acknowledged yet, as the frames in which
// it is sent. A place in it is a position: the number of frame bytes before it
// since the start. It is not safe for concurrent use, but what from returned
// may be read as long as quiet isn't moved beyond it.
type backlog struct {
	segments []segment
	spare    [][]byte // of segments that were freed
	base     int64    // output offset of the first frame that is held
	end      int64    // output offset after the last
	head     int64    // position of the first frame that is held
	tail     int64    // position after the last
	quiet    int64    // position before which nobody reads what from returned
}

type segment struct {
	at     int64 // position of buf[0]
	offset int64 // output offset of the frame there
	buf    []byte
}

func (b *backlog) append(stream byte, at time.Duration, data []byte) {
	size := agent.OutputFrameSize + len(data)
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
	b.segments[last].buf = agent.AppendOutput(b.segments[last].buf, stream, b.end, at, data)
	b.end += int64(len(data))
	b.tail += int64(size)
}

// ack forgets every frame that lies before offset as a whole, and returns the
// number of frame bytes that were freed.
func (b *backlog) ack(offset int64) (freed int64) {
	before := b.head
	for len(b.segments) > 0 {
		s := &b.segments[0]
		for b.head < s.at+int64(len(s.buf)) {
			size, length := frameAt(s.buf[b.head-s.at:])
			if b.base+length > offset {
				return b.head - before
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
	return b.head - before
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
		size, length := frameAt(frame)
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

// frameAt returns the size of the frame that b begins with, and of its data.
func frameAt(b []byte) (size, length int64) {
	size = 4 + int64(binary.BigEndian.Uint32(b))
	return size, size - agent.OutputFrameSize
}
