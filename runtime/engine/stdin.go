package engine

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
)

// stdinPatience is how long a write waits for a program that doesn't read.
const stdinPatience = 10 * time.Second

// writeStdin hands data on to the agent, one write after the other.
func (s *session) writeStdin(ctx context.Context, in StdinInput) (int64, error) {
	impatient := runtime.Errorf(runtime.CodeLimitExceeded, "the program doesn't read its stdin")
	ctx, cancel := context.WithTimeoutCause(ctx, stdinPatience, impatient)
	defer cancel()
	select {
	case s.feeding <- struct{}{}:
		defer func() { <-s.feeding }()
	case <-s.done:
		return 0, ended(s.execution())
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	for {
		s.mu.Lock()
		stream, joined := s.stream, s.joined
		s.mu.Unlock()
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
		case <-joined:
		case <-s.done:
			if in.Offset != nil && *in.Offset+int64(len(in.Data)) <= s.fed {
				return s.fed, nil // it ended of this, perhaps before it was to be closed
			}
			return 0, ended(s.execution())
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// feed writes to one stream what it doesn't have yet. The caller has the turn.
func (s *session) feed(ctx context.Context, stream *agent.Session, in *StdinInput) (int64, error) {
	if err := s.recallInput(ctx, stream); err != nil {
		return s.fed, err
	}
	if in.Offset == nil {
		next := s.fed
		in.Offset = &next
	}
	end := *in.Offset + int64(len(in.Data))
	if *in.Offset < 0 || *in.Offset > s.fed {
		return s.fed, runtime.Invalid("offset", "must be 0 to %d, the bytes written before, not %d", s.fed, *in.Offset)
	}
	if s.inputEnded {
		if end > s.fed {
			return s.fed, runtime.Errorf(runtime.CodeConflict, "the stdin was closed after %d bytes", s.fed)
		}
		return s.fed, nil // a repeat
	}
	offset, err := stream.WriteStdin(ctx, *in.Offset, in.Data)
	s.fed = max(s.fed, offset)
	if err == nil && in.Close {
		err = s.endInput(ctx, stream)
	}
	return s.fed, err
}

// endInput closes the stdin after what was fed. That is stored first, so that
// after a restart nothing is taken that would be thrown away.
func (s *session) endInput(ctx context.Context, stream *agent.Session) error {
	id := s.execution().ID
	if s.begin.Input == nil { // else it is fed, and closed, again anyway
		if err := s.engine.store.NoteInputEnd(context.WithoutCancel(ctx), id, s.fed); err != nil {
			s.engine.logger.Warn("the end of a stdin could not be stored", zap.String("execution", string(id)), zap.Error(err))
		}
	}
	err := stream.CloseStdin()
	s.inputEnded = err == nil
	return err
}

// recallInput learns from the agent, after a restart, how much stdin it has.
func (s *session) recallInput(ctx context.Context, stream *agent.Session) error {
	if !s.resumed || s.inputKnown {
		return nil
	}
	fed, err := stream.WriteStdin(ctx, 0, nil)
	if err != nil {
		return err
	}
	s.fed, s.inputKnown = fed, true
	if s.inputEnd == nil || fed < *s.inputEnd {
		return nil // what was missing when it was to be closed comes again, with the end
	}
	return s.endInput(ctx, stream)
}
