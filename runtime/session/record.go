package session

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/output"
)

// A record is what is stored about an execution: its output log, its times, and its losses. It belongs to
// one goroutine at a time, as Session.change says.
type record struct {
	session   *Session
	log       *output.Log
	received  atomic.Int64 // output bytes received from the agent
	unwritten int64        // received bytes that aren't in the log yet
	sized     bool         // a terminal size was received and not acknowledged yet
	stall     stall
	guessed   bool   // the start time is an estimate
	tail      []byte // the end of its standard error, or of its terminal, since this server leads it
}

// began records that the command runs, since when, and whether it started warm.
func (r *record) began(started agent.Started) {
	s := r.session
	at := r.plausible(s.timeline(time.Now()).Add(-started.Ago))
	x := s.change(func(x runtime.Execution) runtime.Execution {
		if r.guessed {
			// The first output was placed relative to the estimated start, so it moves with it.
			if first := x.Timestamps.FirstOutputAt; !first.IsZero() {
				x.Timestamps.FirstOutputAt = first.Add(at.Sub(x.Timestamps.StartedAt))
			}
			x.Timestamps.StartedAt = at
		}
		if started.Warm || started.Cold != "" {
			x.StartedWarm = &started.Warm
			if !started.Warm {
				x.ColdReason = new(agent.Shorten(started.Cold))
			}
		}
		return Started(x, at)
	})
	r.guessed = false
	start, _ := s.begin.Bytes()
	s.begin.Env, s.begin.Defaults = nil, nil // attempts attach from now on
	s.kept.Shrink(start)
	if s.recovered == nil {
		s.host.Began(at.Sub(x.Timestamps.QueuedAt))
	}
	closeOnce(s.started)
}

// plausible returns a time that the agent reported, or the nearest time that is possible.
func (r *record) plausible(at time.Time) time.Time {
	queued, now := r.session.Execution().Timestamps.QueuedAt, r.session.timeline(time.Now())
	switch {
	case at.Before(queued):
		return queued
	case at.After(now):
		return now
	default:
		return at
	}
}

// output adds output to the log. Events that arrive together are written together.
func (r *record) output(ctx context.Context, stream *agent.Session, event agent.Event) {
	x := r.session.Execution()
	if x.Timestamps.FirstOutputAt.IsZero() {
		at := r.plausible(x.Timestamps.StartedAt.Add(event.Time))
		r.session.change(func(x runtime.Execution) runtime.Execution { return Printed(x, at) })
	}
	if event.Offset+int64(len(event.Data)) > x.OutputLimit { // the agent should have ended the execution
		r.session.hintKill(runtime.OutcomeOutputLimit)
		return
	}
	if runtime.Stream(event.Stream) == runtime.Stderr || x.Terminal != nil {
		r.tail = append(r.tail, event.Data...)
		r.tail = append(r.tail[:0], r.tail[max(0, len(r.tail)-hintBytes):]...)
	}
	r.add(ctx, stream, output.Record{Stream: runtime.Stream(event.Stream), Offset: event.Offset, Since: event.Time, Data: event.Data})
}

func (r *record) add(ctx context.Context, stream *agent.Session, record output.Record) {
	if err := r.log.Add(record); err != nil {
		r.warn("an agent violated its protocol", err)
		_ = stream.Close()
		return
	}
	r.received.Store(record.End())
	r.unwritten += int64(len(record.Data))
	if !stream.Buffered() || r.log.Pending() >= output.FlushBytes {
		r.flush(ctx, stream)
	}
}

// flush writes what was added and acknowledges it. It first removes finished executions if room is
// needed. Output that a full disk refuses is recorded as lost, and readers of the log see that.
// If ctx ended before there was room, or if another server leads, flush returns false. Then the
// agent still has the output, for the next server.
func (r *record) flush(ctx context.Context, stream *agent.Session) bool {
	if r.log.Pending() == 0 {
		return true
	}
	disk := r.session.host.Disk
	disk.MakeRoom(ctx, output.DiskBytes(int64(r.log.Pending()))+output.DiskBytes(1))
	r.stall.begin()
	err := r.log.Flush()
	if err != nil && runtime.CodeOf(err) != runtime.CodeClusterUnavailable {
		// If another server leads, the output isn't lost: that server may have room.
		err = cmp.Or(r.session.host.Store.Leads(context.WithoutCancel(ctx)), err)
	}
	r.stall.end()
	if runtime.CodeOf(err) == runtime.CodeClusterUnavailable { // another server leads: this one is about to end
		<-ctx.Done() // attaching again would acknowledge output that isn't stored
	}
	switch {
	case err == nil:
		disk.Wrote(r.unwritten)
		if r.unwritten > 0 {
			r.wrote(ctx, r.received.Load()-r.unwritten)
		}
	case ctx.Err() != nil:
		if stream != nil {
			_ = stream.Close()
		}
		return false
	default:
		disk.Lost(r.unwritten, err)
		if r.unwritten > 0 {
			r.lose(ctx, r.received.Load()-r.unwritten, unwritten(err))
		}
	}
	r.unwritten = 0
	if stream != nil {
		_ = stream.Ack(r.received.Load()) // a broken stream fails at the next read
		if r.sized {
			_ = stream.AckResized(r.log.Resized())
		}
	}
	r.sized = false
	return true
}

// A stall tracks a write that takes long, during which nothing is read from the agent. Its methods are
// safe for concurrent use.
type stall struct{ began, ended atomic.Pointer[time.Time] } // nil means none

// begin records the start of a write. Writes of one execution never overlap.
func (s *stall) begin() { s.began.Store(new(time.Now())) }

// end records the end of a write, if that took longer than stalledAfter.
func (s *stall) end() {
	if now := time.Now(); now.Sub(*s.began.Swap(nil)) > stalledAfter {
		s.ended.Store(&now)
	}
}

// excuses reports whether an agent can't be called late, because a long write runs, or ended less than
// AgentLate ago.
func (s *stall) excuses(now time.Time) bool {
	began, ended := s.began.Load(), s.ended.Load()
	return began != nil && now.Sub(*began) > stalledAfter || ended != nil && now.Sub(*ended) < AgentLate
}

// stalledAfter is how long a write may take before the disk counts as stalled.
const stalledAfter = time.Second

const maxLosses = 100

// lose records why output from an offset on is lost, for readers and the next server. If that can't be
// stored now, it is stored with the end of the execution.
func (r *record) lose(ctx context.Context, from int64, cause runtime.LossCause) {
	losses := r.session.Execution().LossesBefore(from)
	switch n := len(losses); {
	case n > 0 && losses[n-1].To == from && losses[n-1].Cause == cause:
		losses[n-1].To = 0
	case n < maxLosses: // later losses are UNKNOWN
		losses = append(losses, runtime.OutputLoss{From: from, Cause: cause})
	}
	r.putLosses(ctx, losses)
}

// wrote records that output from an offset on isn't lost, so that an earlier loss ends there.
func (r *record) wrote(ctx context.Context, from int64) {
	if x := r.session.Execution(); len(x.Losses) > 0 {
		r.putLosses(ctx, x.LossesBefore(from))
	}
}

// putLosses stores the execution's losses if they changed. The change is visible even if the store
// fails.
func (r *record) putLosses(ctx context.Context, losses []runtime.OutputLoss) {
	if slices.Equal(losses, r.session.Execution().Losses) {
		return
	}
	x := r.session.change(func(x runtime.Execution) runtime.Execution {
		x.Losses = losses
		return x
	})
	if err := r.session.host.Store.PutExecution(context.WithoutCancel(ctx), x, nil, nil); err != nil {
		r.warn("the reason for lost output could not be stored yet", err)
	}
}

func (r *record) warn(what string, err error) {
	r.session.host.Logger.Warn(what, zap.String("execution", string(r.session.Execution().ID)), zap.Error(err))
}

// unwritten returns the loss cause for an error of a log's Flush.
func unwritten(err error) runtime.LossCause {
	if runtime.CodeOf(err) == runtime.CodeStorageFull {
		return runtime.LossStorageFull
	}
	for _, full := range []error{output.ErrQuota, unix.ENOSPC, unix.EDQUOT} {
		if errors.Is(err, full) {
			return runtime.LossStorageFull
		}
	}
	return runtime.LossUnwritable
}
