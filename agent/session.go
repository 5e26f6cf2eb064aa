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

// A Session is a stream that follows one execution. One goroutine calls Next
// and Buffered; the other methods are safe for concurrent use. After an error
// the session is of no more use, but the execution goes on: attach again.
type Session struct {
	conn    net.Conn
	frames  *FrameReader
	speaks  int           // the newest version that the agent speaks
	resizes bool          // KindResized was asked for
	offset  int64         // of the next output byte; for Next only
	resized time.Duration // when the last size was set; for Next only
	started bool          // for Next only
	exited  bool          // for Next only

	writing sync.Mutex  // held while one frame is written; guards what follows
	acked   int64       // the last offset that was acknowledged
	due     int64       // what Ack was last called with
	later   *time.Timer // sends due; nil: none ever waited
	waits   bool        // later is set

	stdin stdinWindow
}

// How long an Ack waits at most, and for how many bytes: a quarter of what an agent
// holds of an execution.
const (
	ackDelay = 20 * time.Millisecond
	ackBytes = 256 << 10
)

// An Event is what a session received.
type Event struct {
	Kind    Kind          // KindStarted, KindOutput, KindResized or KindExited
	Started Started       // with KindStarted
	Stream  byte          // with KindOutput: 1 stdout, 2 stderr
	Offset  int64         // with KindOutput: of the first byte of Data; with KindResized: of what comes after it
	Time    time.Duration // with KindOutput and KindResized: since the start
	Data    []byte        // with KindOutput; valid until the next call of Next
	Size    Size          // with KindResized: what the terminals have from here on
	Exit    Exit          // with KindExited
}

// openSession opens a session that goes on from s.
func openSession(ctx context.Context, conn net.Conn, request Request, s *Session) (*Session, error) {
	x, response, err := open(ctx, conn, request)
	if err != nil {
		return nil, err
	}
	if !x.stop() {
		_ = conn.Close()
		return nil, context.Cause(ctx)
	}
	s.conn, s.frames, s.speaks = conn, x.frames, response.Speaks
	s.stdin.init()
	return s, nil
}

// Next returns the next event: KindStarted first, then output without a gap
// from the offset that was asked for, with KindResized in between where that was
// asked for too, each once, and KindExited last; then io.EOF. When
// the stream breaks before, the error is io.ErrUnexpectedEOF or the stream's
// own; it is no evidence that the execution ended. An agent that breaks the
// protocol gives ErrProtocol.
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
			if err = s.window(body); err == nil {
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

func (s *Session) event(kind Kind, body []byte) (Event, error) {
	event := Event{Kind: kind}
	if s.started == (kind == KindStarted) {
		return Event{}, fmt.Errorf("%w: kind %d at the wrong time", ErrProtocol, kind)
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
			return Event{}, fmt.Errorf("%w: output at offset %d where %d was due", ErrProtocol, event.Offset, s.offset)
		}
		s.offset += int64(len(event.Data))
		return event, nil
	case KindResized:
		var err error
		event.Offset, event.Time, event.Size, err = ParseResized(body)
		if err == nil && (!s.resizes || event.Offset != s.offset || event.Time <= s.resized) {
			err = fmt.Errorf("%w: a size at offset %d after %v, where %d after %v was the last", ErrProtocol, event.Offset, event.Time, s.offset, s.resized)
		}
		s.resized = event.Time
		return event, err
	case KindExited:
		if err := ParseJSON(body, &event.Exit); err != nil {
			return Event{}, err
		}
		if event.Exit.Output != s.offset {
			return Event{}, fmt.Errorf("%w: exit after %d bytes of output, of which %d came", ErrProtocol, event.Exit.Output, s.offset)
		}
		s.exited = true
		s.stdin.fail(errExited)
		return event, nil
	default:
		return Event{}, fmt.Errorf("%w: kind %d in an execution", ErrProtocol, kind)
	}
}

func (s *Session) window(body []byte) error {
	received, limit, err := ParseStdinWindow(body)
	if err != nil {
		return err
	}
	return s.stdin.open(received, limit)
}

// Buffered reports whether some of another event has arrived already. Frames that Next keeps to itself don't count: after
// them it may wait.
func (s *Session) Buffered() bool { return s.frames.Buffered(KindStdinWindow) }

// Ack schedules the message that all output before offset is kept, so that the agent
// can forget it. It must not be beyond what Next returned. It is sent after 20 ms or
// 256 KiB, whichever is first, because each one wakes both sides. Settled replaces one
// that waits; Close drops it.
func (s *Session) Ack(offset int64) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.due = offset
	switch {
	case s.due <= s.acked:
	case s.due-s.acked >= ackBytes:
		return s.sendAck()
	case s.waits:
	case s.later == nil:
		s.waits, s.later = true, time.AfterFunc(ackDelay, s.ackLate)
	default:
		s.waits = true
		s.later.Reset(ackDelay)
	}
	return nil
}

// ackLate sends the acknowledgement that waited, if none was sent since.
func (s *Session) ackLate() {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.waits = false
	if s.due > s.acked {
		_ = s.sendAck() // a broken stream shows at the next read
	}
}

// sendAck sends the acknowledgement that is due; s.writing is held.
func (s *Session) sendAck() error {
	s.acked = s.due
	return s.writeLocked(AppendAck(nil, s.due))
}

// AckResized says that all sizes that were set until then are kept, likewise.
func (s *Session) AckResized(at time.Duration) error { return s.write(AppendResizedAck(nil, at)) }

// Kill ends the execution and everything that it started: with SIGTERM, and
// with SIGKILL after grace. The end comes as KindExited.
func (s *Session) Kill(grace time.Duration) error {
	return s.tell(KindKill, Kill{Grace: grace}, 1)
}

// Resize gives both terminals another size; those who have them open get
// SIGWINCH. An execution without a terminal, or that has ended, ignores it. The
// error is ErrIncompatible for an agent of version 1; nothing was sent then.
func (s *Session) Resize(size Size) error { return s.tell(KindResize, size, 2) }

// Signal sends a signal ("SIGTERM") to the command's process group and, on a
// terminal, to the group in the foreground there. An execution that has ended
// ignores it. Errors are as for Resize; the name must be one that the agent
// knows.
func (s *Session) Signal(name string) error { return s.tell(KindSignal, Signal{Name: name}, 2) }

// tell sends a control frame that there is since a version.
func (s *Session) tell(kind Kind, v any, since int) error {
	if s.speaks < since {
		return &Error{Code: ErrIncompatible, Message: "the runner's agent is older than the server and can't do this"}
	}
	frame, err := AppendJSON(nil, kind, v)
	if err != nil {
		return err
	}
	return s.write(frame)
}

// Settled says that the exit is stored, so that the agent can forget the
// execution.
func (s *Session) Settled() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.due = s.acked // it says all that an acknowledgement would
	return s.writeLocked(AppendFrame(nil, KindSettled, nil))
}

// Close ends the session. The execution goes on.
func (s *Session) Close() error {
	s.stdin.fail(net.ErrClosed)
	return s.conn.Close()
}

// StdinOffset returns how far the stdin has been sent, by this session or
// those before it; 0 until the agent told.
func (s *Session) StdinOffset() int64 { return s.stdin.offset() }

// WriteStdin sends data, whose first byte is at the given offset of the stdin,
// and returns the offset up to which the stdin has been sent. It blocks while
// the program doesn't read and the agent has no more room, until ctx ends. What
// the agent has already is skipped; a gap is an error. Next must be called
// meanwhile, since it learns how much room there is. Data for an execution
// without stdin, or that closed it, is thrown away by the agent.
func (s *Session) WriteStdin(ctx context.Context, offset int64, data []byte) (int64, error) {
	return s.feed(ctx, offset, data, false)
}

// CloseStdin says that no more stdin comes, after what is being written. It
// may be called again.
func (s *Session) CloseStdin() error {
	_, err := s.feed(context.Background(), 0, nil, true)
	if errors.Is(err, errExited) {
		return nil
	}
	return err
}

// feed writes stdin, or its end, while it has the turn.
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
			return at, fmt.Errorf("stdin at offset %d would leave a gap after %d", offset, at)
		}
		data, offset = data[at-offset:], at
		n := min(int64(len(data)), room, MaxData)
		// Before the write, since the agent's answer may come before it returns.
		s.stdin.advance(n)
		if err := s.write(AppendStdin(nil, at, data[:n])); err != nil {
			return at, err
		}
	}
}

// write sends one frame. A frame that wasn't written whole ends the session.
func (s *Session) write(frame []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.writeLocked(frame)
}

func (s *Session) writeLocked(frame []byte) error {
	if err := writeFrame(s.conn, frame); err != nil {
		_ = s.conn.Close()
		return err
	}
	return nil
}
