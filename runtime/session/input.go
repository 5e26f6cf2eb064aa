package session

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
)

// inputPatience bounds how long a write waits for a program that doesn't read.
const inputPatience = 10 * time.Second

type input struct {
	turn chan struct{} // capacity 1; the writer that put its token in owns the fields below

	sent  int64  // bytes sent
	ended bool   // stdin was closed
	known bool   // sent is what the agent reported
	end   *int64 // offset at which an earlier server closed it or was about to; nil means none

	whole   *string     // what this server feeds, until Input returns it; nil means none
	length  *int64      // of whole; nil means there was none
	feeding atomic.Bool // the agent doesn't have all of whole yet
}

// An Input is data for a running command's stdin.
type Input struct {
	Data   []byte
	Offset *int64 // number of bytes written before, which makes a retry safe
	Close  bool
}

// WriteStdin passes data to the agent and returns the offset after the accepted bytes. Concurrent calls
// run one after the other. It returns LIMIT_EXCEEDED if the program doesn't read for ten seconds.
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
				return offset, &runtime.Error{Code: runtime.CodeLimitExceeded, Offset: &offset,
					Message: fmt.Sprintf("the program doesn't read its stdin: continue later at offset %d", offset)}
			case ctx.Err() != nil || runtime.CodeOf(err) != runtime.CodeInternal:
				return offset, err
			}
			// The stream broke: continue at the same offset on the next one.
		}
		select {
		case <-changed:
		case <-s.done:
			if in.Offset != nil && *in.Offset+int64(len(in.Data)) <= s.input.sent {
				return s.input.sent, nil // this input may have ended the program, even before stdin was closed
			}
			return 0, Ended(s.Execution())
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// feed writes what the agent doesn't have yet to one stream. The caller holds the turn.
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
		return sent, &runtime.Error{Code: runtime.CodeInvalidInput, Field: "offset", Offset: &sent,
			Message: fmt.Sprintf("must be 0 to %d, the bytes written before, not %d", sent, *in.Offset)}
	case s.input.ended && end > sent:
		return sent, &runtime.Error{Code: runtime.CodeConflict, Offset: &sent, Message: fmt.Sprintf("stdin was already closed after %d bytes", sent)}
	case s.input.ended:
		return sent, nil // a retry
	}
	offset, err := stream.WriteStdin(ctx, *in.Offset, in.Data)
	s.input.sent = max(sent, offset)
	if err == nil && in.Close {
		err = s.endInput(ctx, stream)
	}
	return s.input.sent, err
}

// Fed reports that the agent has what Input returned, and its end.
func (s *Session) Fed() {
	if s.input.length != nil && s.input.feeding.Swap(false) {
		s.kept.Shrink(*s.input.length)
	}
}

// endInput closes stdin after the bytes sent. It stores that first, so that no input is accepted after a
// restart that would be discarded.
func (s *Session) endInput(ctx context.Context, stream *agent.Session) error {
	id := s.Execution().ID
	if s.input.length == nil && !s.begin.Fed { // otherwise it is fed and closed again after a restart
		err := s.host.Store.NoteInputEnd(context.WithoutCancel(ctx), id, s.input.sent)
		if runtime.CodeOf(err) == runtime.CodeClusterUnavailable {
			return err // another server leads
		}
		if err != nil {
			s.host.Logger.Warn("end of stdin could not be stored", zap.String("execution", string(id)), zap.Error(err))
		}
	}
	err := stream.CloseStdin()
	s.input.ended = err == nil
	return err
}

// recallInput asks the agent, after a restart, how much stdin it has received.
func (s *Session) recallInput(ctx context.Context, stream *agent.Session) error {
	if s.recovered == nil || s.input.known {
		return nil
	}
	sent, err := stream.WriteStdin(ctx, 0, nil)
	if err != nil {
		return err
	}
	s.input.sent, s.input.known = sent, true
	if s.input.end == nil || sent < *s.input.end {
		return nil // the missing bytes come again, and then the end
	}
	return s.endInput(ctx, stream)
}
