package bridge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Yamux's frames: version, type, flags (2), stream (4), length (4), then length
// bytes if the type is data.
const (
	frameHeader = 12

	frameData   = 0
	frameWindow = 1
	framePing   = 2
	frameGoAway = 3

	flagSYN = 1
	// The window that a stream begins with, and has at most.
	maxWindow = 256 << 10
)

// A guard reads what a bridge sends, and refuses what a session would answer
// without bounds: streams and pings that the other side begins, and frames that
// are no frames.
type guard struct {
	stream io.ReadWriteCloser
	header [frameHeader]byte
	have   int    // bytes of header
	body   uint32 // bytes of a frame's data that are to come

	mu  sync.Mutex // guards err
	err error
}

// errHostile is in the chain of a refusal.
var errHostile = errors.New("protocol violation")

// Read implements io.Reader.
func (g *guard) Read(b []byte) (int, error) {
	n, err := g.stream.Read(b)
	if hostile := g.look(b[:n]); hostile != nil {
		n, err = 0, hostile // nothing that the session could act on
	}
	if err != nil && err != io.EOF {
		g.mu.Lock()
		g.err = err
		g.mu.Unlock()
	}
	return n, err
}

// reason returns why reading ended, if it did with an error.
func (g *guard) reason() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// look goes through the next bytes.
func (g *guard) look(b []byte) error {
	for len(b) > 0 {
		if g.body > 0 {
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

func check(version, kind byte, flags uint16, stream, length uint32) error {
	switch {
	case version != 0 || kind > frameGoAway:
		return fmt.Errorf("%w: a frame of version %d and type %d", errHostile, version, kind)
	case flags&flagSYN != 0:
		return fmt.Errorf("%w: the bridge may not begin a stream, or ask", errHostile)
	case kind <= frameWindow && stream%2 == 0:
		return fmt.Errorf("%w: stream %d", errHostile, stream)
	case kind <= frameWindow && length > maxWindow:
		return fmt.Errorf("%w: a frame of %d bytes", errHostile, length)
	}
	return nil
}

// A joiner writes a frame's header and its data, which a session writes one by
// one, at once: each write travels alone through an alloc exec.
type joiner struct {
	to   io.Writer
	held []byte // a header, and room for the data
	data bool   // held waits for its data
}

// Write implements io.Writer.
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

// joined is what a session reads and writes.
type joined struct {
	*guard
	joiner *joiner
}

func (j joined) Write(b []byte) (int, error) { return j.joiner.Write(b) }
func (j joined) Close() error                { return j.stream.Close() }
