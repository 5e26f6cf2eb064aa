package serve

import (
	"fmt"
	"net"
	"time"

	"github.com/rockpool/rockpool/agent"
)

// A stream is a client that follows an execution. One goroutine sends and one receives.
type stream struct {
	conn net.Conn
	x    *execution
	done chan struct{} // closed when neither goroutine uses the execution any longer

	closed bool  // guarded by x.mu
	sent   int64 // guarded by x.mu: output offset up to which output was sent
}

// cut ends the stream. The caller holds x.mu.
func (st *stream) cut() {
	if !st.closed {
		st.closed = true
		_ = st.conn.Close()
		st.x.news.Broadcast()
	}
}

// follow sends x to a client, in place of an earlier client, and returns when the stream ends. It
// reports whether the client settled x.
func (x *execution) follow(conn net.Conn, frames *agent.FrameReader, from agent.Attach, hello []byte) (settled bool, err error) {
	st := &stream{conn: conn, x: x, done: make(chan struct{})}
	defer close(st.done)
	position, rest, err := st.attach(from)
	if err != nil {
		return false, err
	}
	started := agent.Started{Ago: time.Since(x.at)}
	started.Warm, started.Cold = x.process.StartedWarm()
	if hello, err = agent.AppendJSON(hello, agent.KindStarted, started); err != nil {
		return false, err
	}
	// The response, the start, the window and the rest of a split frame are one write.
	hello = append(hello, x.in.window(true)...)
	hello = append(hello, rest...)
	sending := make(chan struct{})
	go func() { // ends when the stream is cut
		defer close(sending)
		st.send(hello, position)
	}()
	settled, err = st.receive(frames)
	x.mu.Lock()
	st.cut()
	x.mu.Unlock()
	<-sending
	return settled, err
}

// attach replaces the current stream, waits for its end, and returns the position to send from.
// Rest is a frame with the remaining bytes of a frame that offset splits.
func (st *stream) attach(from agent.Attach) (position int64, rest []byte, err error) {
	x, offset := st.x, from.Offset
	x.mu.Lock()
	// The old stream has stopped reading the backlog before this one changes it, since frames are
	// read without the lock.
	old := x.stream
	x.stream = st
	if old != nil {
		old.cut()
	}
	x.mu.Unlock()
	if old != nil {
		<-old.done
	}
	x.mu.Lock()
	base, end := x.backlog.base, x.backlog.end
	x.mu.Unlock()
	if offset < base || offset > end {
		return 0, nil, &agent.Error{Code: agent.ErrInvalid, Field: "offset",
			Message: fmt.Sprintf("the agent holds output from offset %d to %d, but %d was requested", base, end, offset)}
	}
	// An attach acknowledges all output before its offset.
	x.ack(offset, from.Resized)
	x.mu.Lock()
	defer x.mu.Unlock()
	position, rest = x.backlog.seek(offset)
	x.backlog.quiet = position
	st.sent = x.backlog.end
	if frames, _ := x.backlog.from(position); len(frames) > 0 {
		st.sent = offset
		if len(rest) > 0 {
			st.sent += int64(len(rest) - agent.OutputFrameSize)
		}
	}
	return position, rest, nil
}

// send writes hello, then everything new, until the stream is cut.
func (st *stream) send(hello []byte, position int64) {
	x := st.x
	exited := false
	if !st.write(hello) {
		return
	}
	var scratch []byte
	for {
		x.mu.Lock()
		// Everything before position was written, so these buffers may be reused.
		x.backlog.quiet = position
		frames, end := x.backlog.from(position)
		for !st.closed && len(frames) == 0 && !x.windowNew && (x.exit == nil || exited) {
			x.news.Wait()
			frames, end = x.backlog.from(position)
		}
		if st.closed {
			x.mu.Unlock()
			return
		}
		position += int64(len(frames))
		st.sent = end
		window := x.windowNew
		x.windowNew = false
		exit := x.exit
		last := exit != nil && !exited && position == x.backlog.tail
		x.mu.Unlock()

		if window || last {
			// Other frames than output are rare: they are worth a copy, not a second write.
			scratch = append(scratch[:0], frames...)
			if window {
				scratch = append(scratch, x.in.window(false)...)
			}
			if last {
				exited = true
				scratch, _ = agent.AppendJSON(scratch, agent.KindExited, exit) // of fixed size
			}
			frames = scratch
		}
		if len(frames) > 0 && !st.write(frames) {
			return
		}
	}
}

// write writes to the client, and reports whether it succeeded. It blocks while the client doesn't
// read.
func (st *stream) write(b []byte) bool {
	if _, err := st.conn.Write(b); err != nil {
		// The goroutine that reads sees it too, and cuts the stream.
		_ = st.conn.Close()
		return false
	}
	return true
}

// receive carries out what the client sends. It never waits for the client to
// read.
func (st *stream) receive(frames *agent.FrameReader) (settled bool, err error) {
	x := st.x
	for {
		kind, body, err := frames.Next()
		if err != nil {
			return false, err
		}
		switch kind {
		case agent.KindStdin:
			var offset int64
			var data []byte
			if offset, data, err = agent.ParseStdin(body); err == nil {
				err = x.in.receive(offset, data)
			}
		case agent.KindStdinEnd:
			x.in.finish()
		case agent.KindAck:
			var offset int64
			if offset, err = agent.ParseAck(body); err == nil {
				err = st.acknowledged(offset)
			}
		case agent.KindResizedAck:
			var at time.Duration
			if at, err = agent.ParseResizedAck(body); err == nil {
				x.ack(0, at)
			}
		case agent.KindKill:
			var kill agent.Kill
			if err = agent.ParseJSON(body, &kill); err == nil {
				x.kill(agent.CauseKill, max(kill.Grace, 0))
			}
		case agent.KindResize:
			var size agent.Size
			if err = agent.ParseJSON(body, &size); err == nil {
				if err = size.Check(); err == nil {
					x.resize(size)
				}
			}
		case agent.KindSignal:
			var signal agent.Signal
			if err = agent.ParseJSON(body, &signal); err == nil {
				x.mu.Lock()
				ended := x.ended
				x.mu.Unlock()
				if !ended && !x.process.Signal(signal.Name) {
					err = fmt.Errorf("%w: unknown signal %.20q", agent.ErrProtocol, signal.Name)
				}
			}
		case agent.KindSettled:
			x.mu.Lock()
			exited := x.exit != nil
			x.mu.Unlock()
			if !exited {
				err = fmt.Errorf("%w: KindSettled came before the exit", agent.ErrProtocol)
				break
			}
			return true, nil
		default:
			err = fmt.Errorf("%w: unexpected frame of kind %d in an execution", agent.ErrProtocol, kind)
		}
		if err != nil {
			return false, err
		}
	}
}

// acknowledged handles a KindAck frame. Output that wasn't sent can't be acknowledged.
func (st *stream) acknowledged(offset int64) error {
	st.x.mu.Lock()
	sent := st.sent
	st.x.mu.Unlock()
	if offset > sent {
		return fmt.Errorf("%w: %d bytes were acknowledged, but only %d were sent", agent.ErrProtocol, offset, sent)
	}
	st.x.ack(offset, 0)
	return nil
}
