package session

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
)

// inputPatience is how long a write waits for a program that doesn't read.
const inputPatience = 10 * time.Second

// An input is what is known of the stdin.
type input struct {
	turn chan struct{} // holds a token while a caller writes; who has it has what follows

	sent  int64  // bytes
	ended bool   // it was closed
	known bool   // sent is what the agent has
	end   *int64 // where an earlier server closed it, or was about to; nil: nowhere
}

// An Input is stdin for a running command.
type Input struct {
	Data   []byte
	Offset *int64 // bytes written before; makes a retry safe
	Close  bool
}

// WriteStdin hands data on to the agent, one call after the other, and returns the offset
// after what it took. LIMIT_EXCEEDED: the program doesn't read.
func (s *Session) WriteStdin(ctx context.Context, in Input) (int64, error) {
	impatient := runtime.Errorf(runtime.CodeLimitExceeded, "the program doesn't read its stdin")
	ctx, cancel := context.WithTimeoutCause(ctx, inputPatience, impatient)
	defer cancel()
	select {
	case s.input.turn <- struct{}{}:
		defer func() { <-s.input.turn }()
	case <-s.done:
		return 0, Ended(s.Execution())
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	for {
		stream, changed := s.stream.Get()
		if stream != nil {
			offset, err := s.feed(ctx, stream, &in)
			switch {
			case err == nil:
				return offset, nil
			case context.Cause(ctx) == error(impatient):
				return offset, runtime.Errorf(runtime.CodeLimitExceeded,
					"the program doesn't read its stdin: go on later at offset %d", offset)
			case ctx.Err() != nil || runtime.CodeOf(err) != runtime.CodeInternal:
				return offset, err
			}
			// The stream broke: the next one goes on at the same offset.
		}
		select {
		case <-changed:
		case <-s.done:
			if in.Offset != nil && *in.Offset+int64(len(in.Data)) <= s.input.sent {
				return s.input.sent, nil // it ended of this, perhaps before it was to be closed
			}
			return 0, Ended(s.Execution())
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// feed writes to one stream what it doesn't have yet. The caller has the turn.
func (s *Session) feed(ctx context.Context, stream *agent.Session, in *Input) (int64, error) {
	if err := s.recallInput(ctx, stream); err != nil {
		return s.input.sent, err
	}
	sent := s.input.sent
	if in.Offset == nil {
		in.Offset = &sent
	}
	end := *in.Offset + int64(len(in.Data))
	switch {
	case *in.Offset < 0 || *in.Offset > sent:
		return sent, runtime.Invalid("offset", "must be 0 to %d, the bytes written before, not %d", sent, *in.Offset)
	case s.input.ended && end > sent:
		return sent, runtime.Errorf(runtime.CodeConflict, "the stdin was closed after %d bytes", sent)
	case s.input.ended:
		return sent, nil // a repeat
	}
	offset, err := stream.WriteStdin(ctx, *in.Offset, in.Data)
	s.input.sent = max(sent, offset)
	if err == nil && in.Close {
		err = s.endInput(ctx, stream)
	}
	return s.input.sent, err
}

// endInput closes the stdin after what was sent. That is stored first, so that after a
// restart nothing is taken that would be thrown away.
func (s *Session) endInput(ctx context.Context, stream *agent.Session) error {
	id := s.Execution().ID
	if s.begin.Input == nil && !s.begin.Fed { // else it is fed, and closed, again anyway
		err := s.host.Store.NoteInputEnd(context.WithoutCancel(ctx), id, s.input.sent)
		if runtime.CodeOf(err) == runtime.CodeClusterUnavailable {
			return err // another server leads
		}
		if err != nil {
			s.host.Logger.Warn("the end of a stdin could not be stored", zap.String("execution", string(id)), zap.Error(err))
		}
	}
	err := stream.CloseStdin()
	s.input.ended = err == nil
	return err
}

// recallInput learns from the agent, after a restart, how much stdin it has.
func (s *Session) recallInput(ctx context.Context, stream *agent.Session) error {
	if s.left == nil || s.input.known {
		return nil
	}
	sent, err := stream.WriteStdin(ctx, 0, nil)
	if err != nil {
		return err
	}
	s.input.sent, s.input.known = sent, true
	if s.input.end == nil || sent < *s.input.end {
		return nil // what was missing when it was to be closed comes again, with the end
	}
	return s.endInput(ctx, stream)
}
