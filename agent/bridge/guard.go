package bridge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
)

// A frame of yamux: version, type, flags (2 bytes), stream (4), length (4), then length bytes of
// data if the type is data.
const (
	frameHeader = 12

	frameData   = 0
	frameWindow = 1
	framePing   = 2
	frameGoAway = 3

	flagSYN = 1
	// maxWindow is yamux's initial and maximum window of a stream, in bytes.
	maxWindow = 256 << 10
)

// A guard reads the bridge's frames and rejects what would make a yamux session allocate without a
// bound: streams and pings from the peer, and malformed frames.
type guard struct {
	stream io.ReadWriteCloser
	header [frameHeader]byte
	have   int    // bytes of header that were read
	body   uint32 // bytes of the current frame's data that weren't read

	failed atomic.Pointer[error] // why reading ended, if it has
}

// errHostile is in the chain of every rejection.
var errHostile = errors.New("protocol violation")

func (g *guard) Read(b []byte) (int, error) {
	n, err := g.stream.Read(b)
	if hostile := g.inspect(b[:n]); hostile != nil {
		n, err = 0, hostile // the session must not see any of these bytes
	}
	if err != nil && err != io.EOF {
		g.failed.Store(&err)
	}
	return n, err
}

func (g *guard) inspect(b []byte) error {
	for len(b) > 0 {
		if g.body > 0 {
			// Data belongs to the current frame, whatever it contains.
			skip := min(g.body, uint32(len(b)))
			g.body -= skip
			b = b[skip:]
			continue
		}
		n := copy(g.header[g.have:], b)
		g.have += n
		b = b[n:]
		if g.have < frameHeader {
			return nil
		}
		g.have = 0
		kind, flags := g.header[1], binary.BigEndian.Uint16(g.header[2:])
		stream, length := binary.BigEndian.Uint32(g.header[4:]), binary.BigEndian.Uint32(g.header[8:])
		if err := check(g.header[0], kind, flags, stream, length); err != nil {
			return err
		}
		if kind == frameData {
			g.body = length
		}
	}
	return nil
}

// check rejects a frame's header, unless the bridge may send such a frame. The client's streams
// have odd numbers.
func check(version, kind byte, flags uint16, stream, length uint32) error {
	switch {
	case version != 0 || kind > frameGoAway:
		return fmt.Errorf("%w: a frame of version %d and type %d", errHostile, version, kind)
	case flags&flagSYN != 0:
		return fmt.Errorf("%w: the bridge may not open a stream or send a ping", errHostile)
	case kind <= frameWindow && stream%2 == 0:
		return fmt.Errorf("%w: a frame for stream %d, which the client doesn't open", errHostile, stream)
	case kind <= frameWindow && length > maxWindow:
		return fmt.Errorf("%w: a frame of %d bytes", errHostile, length)
	}
	return nil
}

// A joiner joins a frame's header and its data to one write. A session writes them separately, and
// an alloc exec sends every write as a message of its own.
type joiner struct {
	to   io.Writer
	held []byte // a header, and capacity for its data
	data bool   // held is a header whose data comes with the next write
}

func (j *joiner) Write(b []byte) (int, error) {
	if !j.data && len(b) == frameHeader && b[1] == frameData && binary.BigEndian.Uint32(b[8:]) > 0 {
		j.held, j.data = append(j.held[:0], b...), true
		return len(b), nil
	}
	if !j.data {
		return j.to.Write(b)
	}
	j.data = false
	j.held = append(j.held, b...)
	n, err := j.to.Write(j.held)
	if cap(j.held) > 64<<10 {
		j.held = nil
	}
	return max(0, n-frameHeader), err
}

// joinedStream is the stream that a session reads and writes.
type joinedStream struct {
	*guard
	joiner *joiner
}

func (j joinedStream) Write(b []byte) (int, error) { return j.joiner.Write(b) }
func (j joinedStream) Close() error                { return j.stream.Close() }
