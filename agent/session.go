package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// A Session is a stream that follows one execution. Only one goroutine may call Next and Buffered;
// the other methods are safe for concurrent use. Every error is final for the session. The
// execution continues: attach again with [AttachExecution].
type Session struct {
	conn     net.Conn
	frames   *FrameReader
	terminal bool // the execution has a terminal

	// Only Next uses these.
	offset  int64         // of the next output byte
	resized time.Duration // time of the last size
	started bool
	exited  bool

	writing  sync.Mutex  // held while a frame is written; guards the fields below it, up to stdin
	acked    int64       // the last offset that was acknowledged
	due      int64       // the last offset that Ack was called with
	later    *time.Timer // sends due after ackDelay; nil until it is first needed
	laterSet bool        // later is running

	stdin stdinWindow
}

// Acknowledgements are combined for ackDelay or ackBytes, whichever is reached first. ackBytes is a
// quarter of the output that an agent holds for an execution.
const (
	ackDelay = 20 * time.Millisecond
	ackBytes = 256 << 10
)

// An Event is one message from the agent about the execution.
type Event struct {
	Kind    Kind          // KindStarted, KindOutput, KindResized or KindExited
	Started Started       // with KindStarted
	Stream  byte          // with KindOutput: 1 stdout, 2 stderr
	Offset  int64         // with KindOutput: of the first byte of Data; with KindResized: of the next output byte
	Time    time.Duration // with KindOutput and KindResized: since the start
	Data    []byte        // with KindOutput; valid until the next call of Next
	Size    Size          // with KindResized: the terminals' new size
	Exit    Exit          // with KindExited
}

// openSession sends the request that opens s, and completes s. It closes conn on an error.
func openSession(ctx context.Context, conn net.Conn, request Request, s *Session) (*Session, error) {
	x, _, err := open(ctx, conn, request)
	if err != nil {
		return nil, err
	}
	if !x.stop() {
		_ = conn.Close()
		return nil, context.Cause(ctx)
	}
	s.conn, s.frames = conn, x.frames
	s.stdin.init()
	return s, nil
}

// Next returns the next event: first KindStarted, then output without a gap from the requested
// offset, then KindExited, then io.EOF. With a terminal, KindResized events come in between. Each
// event comes once. If the stream breaks earlier, the error is io.ErrUnexpectedEOF or the stream's
// own; this doesn't mean that the execution ended. ErrProtocol means that the agent violated the
// protocol.
func (s *Session) Next() (Event, error) {
	if s.exited {
		return Event{}, io.EOF
	}
	for {
		kind, body, err := s.frames.Next()
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err == nil && kind == KindStdinWindow {
			var received, limit int64
			if received, limit, err = ParseStdinWindow(body); err == nil {
				err = s.stdin.open(received, limit)
			}
			if err == nil {
				continue
			}
		}
		var event Event
		if err == nil {
			event, err = s.event(kind, body)
		}
		if err != nil {
			s.stdin.fail(err)
			return Event{}, err
		}
		return event, nil
	}
}

// event decodes a frame and checks it against the frames before. Every kind that isn't an event
// violates the protocol.
func (s *Session) event(kind Kind, body []byte) (Event, error) {
	event := Event{Kind: kind}
	if s.started == (kind == KindStarted) {
		return Event{}, fmt.Errorf("%w: a frame of kind %d, but KindStarted must come first and once", ErrProtocol, kind)
	}
	switch kind {
	case KindStarted:
		s.started = true
		return event, ParseJSON(body, &event.Started)
	case KindOutput:
		var err error
		event.Stream, event.Offset, event.Time, event.Data, err = ParseOutput(body)
		if err != nil {
			return Event{}, err
		}
		if event.Offset != s.offset {
			return Event{}, fmt.Errorf("%w: output at offset %d, expected %d", ErrProtocol, event.Offset, s.offset)
		}
		s.offset += int64(len(event.Data))
		return event, nil
	case KindResized:
		var err error
		event.Offset, event.Time, event.Size, err = ParseResized(body)
		if err == nil && (!s.terminal || event.Offset != s.offset || event.Time <= s.resized) {
			err = fmt.Errorf("%w: a size at offset %d and time %v, expected offset %d and a time after %v", ErrProtocol, event.Offset, event.Time, s.offset, s.resized)
		}
		s.resized = event.Time
		return event, err
	case KindExited:
		if err := ParseJSON(body, &event.Exit); err != nil {
			return Event{}, err
		}
		if event.Exit.Output != s.offset {
			return Event{}, fmt.Errorf("%w: the exit reports %d bytes of output, but %d were received", ErrProtocol, event.Exit.Output, s.offset)
		}
		s.exited = true
		s.stdin.fail(errExited)
		return event, nil
	default:
		return Event{}, fmt.Errorf("%w: unexpected frame of kind %d in an execution", ErrProtocol, kind)
	}
}

// Buffered reports whether part of another event has arrived. It ignores frames that Next doesn't
// return, so that Next may still block when it returns true.
func (s *Session) Buffered() bool { return s.frames.Buffered(KindStdinWindow) }

// Ack acknowledges all output before offset, so that the agent can free it. The caller must have
// stored that output. Offset must not be beyond the events that Next returned. The frame is sent
// after 20 ms or 256 KiB of output, whichever is first, because each frame wakes both sides.
// Settled replaces a pending Ack; Close drops it.
func (s *Session) Ack(offset int64) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.due = offset
	switch {
	case s.due <= s.acked:
	case s.due-s.acked >= ackBytes:
		return s.sendAck()
	case s.laterSet:
	case s.later == nil:
		s.laterSet, s.later = true, time.AfterFunc(ackDelay, s.ackLate)
	default:
		s.laterSet = true
		s.later.Reset(ackDelay)
	}
	return nil
}

// ackLate sends the pending acknowledgement, unless a newer one was sent.
func (s *Session) ackLate() {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.laterSet = false
	if s.due > s.acked {
		_ = s.sendAck() // the next read reports a broken stream
	}
}

// sendAck sends the acknowledgement that is due. The caller holds s.writing.
func (s *Session) sendAck() error {
	s.acked = s.due
	return s.writeLocked(AppendAck(nil, s.due))
}

// AckResized acknowledges all sizes that were set up to the given time since the start.
func (s *Session) AckResized(at time.Duration) error { return s.write(AppendResizedAck(nil, at)) }

// Kill ends the execution and everything that it started, with SIGTERM and, after grace, SIGKILL.
// It doesn't wait: the end is reported as KindExited.
func (s *Session) Kill(grace time.Duration) error {
	return s.sendControl(KindKill, Kill{Grace: grace})
}

// Resize gives both terminals another size. Processes in the foreground get SIGWINCH. An execution
// without a terminal, or that has ended, ignores it.
func (s *Session) Resize(size Size) error { return s.sendControl(KindResize, size) }

// Signal sends a signal ("SIGTERM") to the command's process group and, on a terminal, to its
// foreground group. An execution that has ended ignores it. The agent breaks the
// session if it doesn't know the name.
func (s *Session) Signal(name string) error { return s.sendControl(KindSignal, Signal{Name: name}) }

func (s *Session) sendControl(kind Kind, v any) error {
	frame, err := AppendJSON(nil, kind, v)
	if err != nil {
		return err
	}
	return s.write(frame)
}

// Settled reports that the server stored the exit, so that the agent can forget the execution.
func (s *Session) Settled() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.due = s.acked // Settled includes every pending acknowledgement
	return s.writeLocked(AppendFrame(nil, KindSettled, nil))
}

// Close ends the session: calls that wait return net.ErrClosed. The execution continues.
func (s *Session) Close() error {
	s.stdin.fail(net.ErrClosed)
	return s.conn.Close()
}

// StdinOffset returns the number of stdin bytes that this session and earlier ones have sent. It is
// 0 until the agent reports it.
func (s *Session) StdinOffset() int64 { return s.stdin.offset() }

// WriteStdin sends data, whose first byte is at the given offset of stdin. It returns the offset up
// to which stdin has been sent. It blocks while the agent's buffer is full because the program
// doesn't read, until ctx ends. Bytes that the agent already has are skipped; a gap is an error.
// Another goroutine must call Next meanwhile, because Next receives the agent's window. The agent
// discards data for an execution that has no stdin or has closed it.
func (s *Session) WriteStdin(ctx context.Context, offset int64, data []byte) (int64, error) {
	return s.feed(ctx, offset, data, false)
}

// CloseStdin ends stdin, after writes that are in progress. It may be called repeatedly.
func (s *Session) CloseStdin() error {
	_, err := s.feed(context.Background(), 0, nil, true)
	if errors.Is(err, errExited) {
		return nil
	}
	return err
}

// feed writes data, or the end of stdin, after earlier calls have returned.
func (s *Session) feed(ctx context.Context, offset int64, data []byte, end bool) (int64, error) {
	if err := s.stdin.take(ctx); err != nil {
		return s.stdin.offset(), err
	}
	defer s.stdin.release()
	if end {
		return 0, s.write(AppendFrame(nil, KindStdinEnd, nil))
	}
	for {
		at, room, err := s.stdin.wait(ctx, offset+int64(len(data)))
		if err != nil || offset+int64(len(data)) <= at {
			return at, err
		}
		if offset > at {
			return at, fmt.Errorf("stdin at offset %d would leave a gap: %d bytes have been sent", offset, at)
		}
		data, offset = data[at-offset:], at
		n := min(int64(len(data)), room, MaxData)
		// Advance before the write: the agent's next window may arrive before write returns.
		s.stdin.advance(n)
		if err := s.write(AppendStdin(nil, at, data[:n])); err != nil {
			return at, err
		}
	}
}

// write sends one frame. If the frame wasn't written completely, it closes the session.
func (s *Session) write(frame []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.writeLocked(frame)
}

// writeLocked is write for a caller that holds s.writing.
func (s *Session) writeLocked(frame []byte) error {
	if err := writeFrame(s.conn, frame); err != nil {
		_ = s.conn.Close()
		return err
	}
	return nil
}
