package session

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

func TestAnExecutionIsLedToItsEnd(t *testing.T) {
	b := newBed(t)
	s := b.session(nil, "echo", "hello")
	b.run(s)
	<-s.Done()
	x := s.Execution()
	if x.State != runtime.ExecutionFinished || x.End.Outcome != runtime.OutcomeExited || x.Usage.OutputBytes != 6 || b.ended.Load() != 1 {
		t.Errorf("%+v, ended %d times", x, b.ended.Load())
	}
	wait.For(t, "the use of the runner ends after the end is stored", func() bool {
		return slices.Equal(b.noted(), []string{"finish EXITED", "done"})
	})
}

// TestKillIsStoredFirst checks that Kill returns once the first reason is stored, even before there
// is a stream or concurrently with other kills.
func TestKillIsStoredFirst(t *testing.T) {
	b := newBed(t)
	s := b.session(nil, "sleep", "1000")
	s.RunnerGone("") // may be called at any time, and never blocks
	for range 3 {
		s.hintKill(runtime.OutcomeCancelled)
		s.RunnerGone(runtime.GoneReleased)
	}
	b.run(s)
	s.Kill(t.Context(), runtime.OutcomeTimeLimit)
	if notes := b.noted(); len(notes) == 0 || notes[0] != "kill CANCELLED" {
		t.Errorf("stored: %v", notes)
	}
	<-s.Done()
	if x := s.Execution(); x.End.Outcome != runtime.OutcomeCancelled && x.End.GoneReason != runtime.GoneUnknown {
		t.Errorf("%+v", x.End)
	}
	s.Kill(t.Context(), runtime.OutcomeTimeLimit) // too late: it doesn't wait
}

// TestEndIsStoredBeforeItIsPublished lets the store fail several times. A server that stops
// meanwhile leaves the end to the next.
func TestEndIsStoredBeforeItIsPublished(t *testing.T) {
	b := newBed(t)
	b.fail(errors.New("the disk is full"))
	stopped, s := b.session(nil, "true"), b.session(nil, "true")
	stop := b.run(stopped)
	b.run(s)
	for _, s := range []*Session{stopped, s} {
		<-s.Started()
	}
	stop()
	for _, s := range []*Session{stopped, s} {
		if x := s.Execution(); x.State == runtime.ExecutionFinished || b.ended.Load() > 0 {
			t.Errorf("it is seen to end: %+v", x)
		}
	}
	b.fail(nil)
	<-s.Done()
	select {
	case <-stopped.Done():
		t.Error("what was stopped ended")
	default:
	}
	stopped.Kill(t.Context(), runtime.OutcomeCancelled) // nothing runs that could store it: it doesn't block
}

// TestMissingRunnerEndsTheExecution checks that the reason stored by an earlier server is used.
func TestMissingRunnerEndsTheExecution(t *testing.T) {
	b := newBed(t)
	s := b.session(nil)
	s.recovered = &recovered{gone: runtime.GoneInactivity}
	s.Run(t.Context(), nil)
	if x := s.Execution(); x.End.Outcome != runtime.OutcomeRunnerGone || x.End.GoneReason != runtime.GoneInactivity {
		t.Errorf("%+v", x.End)
	}
}

// TestOutputIsComparedBeforeTheEndIsStored: the stored end has the result.
func TestOutputIsComparedBeforeTheEndIsStored(t *testing.T) {
	for name, test := range map[string]struct {
		command         []string
		expected        string
		bytes           int64
		matches         *bool
		message, differ string
	}{
		"equal":              {[]string{"echo", "hello"}, "hello", 5, new(true), "", ""},
		"different":          {[]string{"echo", "hello"}, "Hello", 5, new(false), `line 1: "hello" instead of "Hello"`, "hello"},
		"an exit status":     {[]string{"exit", "3"}, "", 0, nil, "", ""},
		"the expected went":  {[]string{"echo", "hello"}, "hello", 6, new(false), "the expected output is no longer stored", ""},
		"nothing is printed": {[]string{"true"}, "", 0, new(true), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.expected = test.expected
			s := b.session(nil, test.command...)
			s.change(func(x runtime.Execution) runtime.Execution {
				x.Batch, x.Comparison = &runtime.BatchPosition{ID: "b"}, &runtime.Comparison{Mode: runtime.CompareTrimmed, Bytes: test.bytes}
				return x
			})
			before := s.Execution().Comparison
			b.run(s)
			<-s.Done()
			got := *s.Execution().Comparison
			if before.Matches != nil || before.Message != nil {
				t.Errorf("an earlier state changed: %+v", before)
			}
			if (got.Matches == nil) != (test.matches == nil) || got.Matches != nil && *got.Matches != *test.matches || s.Execution().Accepted() != (test.matches != nil && *test.matches) {
				t.Errorf("%+v", got)
			}
			if test.message == "" && got.Message != nil || test.message != "" && (got.Message == nil || *got.Message != test.message) {
				t.Errorf("%+v, want %s", got, test.message)
			}
			if (got.Difference != nil) != (test.differ != "") || test.differ != "" && *got.Difference.Actual != test.differ {
				t.Errorf("%+v", got.Difference)
			}
		})
	}
}

// TestStoppingServerCompares: its runners may be removed, and then nobody else knows the end. A long comparison
// doesn't delay the stop.
func TestStoppingServerCompares(t *testing.T) {
	b := newBed(t)
	s := b.session(nil, "true")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	x := s.Execution()
	x.State, x.End.Outcome = runtime.ExecutionFinished, runtime.OutcomeExited
	x.Batch, x.Comparison = &runtime.BatchPosition{ID: "b"}, &runtime.Comparison{Mode: runtime.CompareTrimmed}
	if s.finish(ctx, b, x); !s.Execution().Accepted() {
		t.Errorf("%+v", s.Execution().Comparison)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		longer, cancel := lasting(ctx, comparedWithin)
		defer cancel()
		stop()
		began := time.Now()
		if <-longer.Done(); time.Since(began) != comparedWithin {
			t.Errorf("it lasted %v, want %v", time.Since(began), comparedWithin)
		}
	})
}

// TestUnreadableExpectedOutputIsNoResult: the comparison waits until the store works again, as the end does.
func TestUnreadableExpectedOutputIsNoResult(t *testing.T) {
	b := newBed(t)
	b.expected = "hello"
	b.fail(errors.New("the database is unreachable"))
	s := b.session(nil, "echo", "hello")
	s.change(func(x runtime.Execution) runtime.Execution {
		x.Batch, x.Comparison = &runtime.BatchPosition{ID: "b"}, &runtime.Comparison{Mode: runtime.CompareTrimmed, Bytes: 5}
		return x
	})
	b.run(s)
	<-s.Started()
	b.fail(nil)
	<-s.Done()
	if !s.Execution().Accepted() {
		t.Errorf("%+v", s.Execution().Comparison)
	}
}
