package session

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/output"
	"github.com/rockpool/rockpool/test/wait"
)

// TestEachLossEndsWhereOutputIsWritten checks that each event of lost output has one cause, UNKNOWN
// beyond maxLosses.
func TestEachLossEndsWhereOutputIsWritten(t *testing.T) {
	s := newBed(t).session(nil)
	r := &s.record
	want := func(offset int64, want runtime.LossCause) {
		t.Helper()
		if cause, _ := s.Execution().LossAt(offset); cause != want {
			t.Errorf("at %d it is %q, not %q, of %v", offset, cause, want, s.Execution().Losses)
		}
	}
	r.lose(t.Context(), 0, runtime.LossStorageFull)
	r.lose(t.Context(), 10, runtime.LossStorageFull)
	r.lose(t.Context(), 20, runtime.LossUnwritable)
	r.wrote(t.Context(), 30)
	r.lose(t.Context(), 40, runtime.LossUnwritable)
	if n := len(s.Execution().Losses); n != 3 {
		t.Errorf("%d are stored: %v", n, s.Execution().Losses)
	}
	for offset, cause := range map[int64]runtime.LossCause{0: runtime.LossStorageFull, 10: runtime.LossStorageFull, 20: runtime.LossUnwritable, 30: "", 40: runtime.LossUnwritable, 100: runtime.LossUnwritable} {
		want(offset, cause)
	}
	// An agent sends again what an earlier server refused, and now there is room.
	r.wrote(t.Context(), 10)
	want(9, runtime.LossStorageFull)
	want(40, "")
	for i := range int64(2 * maxLosses) {
		r.lose(t.Context(), 100+20*i, runtime.LossStorageFull)
		r.wrote(t.Context(), 110+20*i)
		want(110+20*i, "")
	}
	if n := len(s.Execution().Losses); n != maxLosses {
		t.Errorf("%d are stored, want %d", n, maxLosses)
	}
	want(100, runtime.LossStorageFull)
	want(100+20*(2*maxLosses-1), "")
}

// TestStoppingServerLosesNoOutput checks that output that a full quota refuses while the server
// stops is neither lost nor acknowledged.
func TestStoppingServerLosesNoOutput(t *testing.T) {
	quota := output.NewQuota(1 << 20)
	quota.Add(2 << 20)
	stopping, stop := context.WithCancel(t.Context())
	stop()
	for ctx, kept := range map[context.Context]bool{t.Context(): false, stopping: true} {
		b := newBed(t)
		s := b.session(quota)
		if err := s.record.log.Add(output.Record{Stream: runtime.Stdout, Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		s.record.unwritten = 1
		if went := s.record.flush(ctx, nil); went == kept || b.lost.Load() == 1 == kept {
			t.Errorf("stopping %t: it continued %t, %d bytes were lost", kept, went, b.lost.Load())
		}
	}
}

// TestOutputUnwritableHereIsLeftToTheNextLeader checks that the output is neither lost nor
// acknowledged. The agent isn't contacted again, because that would acknowledge it.
func TestOutputUnwritableHereIsLeftToTheNextLeader(t *testing.T) {
	quota := output.NewQuota(1 << 20)
	quota.Add(2 << 20)
	b := newBed(t)
	b.taken = make(chan struct{})
	s := b.session(quota)
	if err := s.record.log.Add(output.Record{Stream: runtime.Stdout, Data: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	s.record.unwritten = 1
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	went := make(chan bool, 1)
	go func() { went <- s.record.flush(ctx, nil) }()
	wait.Receive(t, b.taken, "that it asks who leads")
	select {
	case <-went:
		t.Error("it continues although it still runs")
	default:
	}
	stop()
	if wait.Receive(t, went, "its end") || b.lost.Load() != 0 {
		t.Errorf("%d bytes were lost", b.lost.Load())
	}
}

// TestSlowWritesExcuseAgents checks this because nothing is read from the agent during a write.
func TestSlowWritesExcuseAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s stall
		excuses := func(want bool) {
			t.Helper()
			if s.excuses(time.Now()) != want {
				t.Errorf("excuses: %t", !want)
			}
		}
		excuses(false)
		s.begin()
		time.Sleep(stalledAfter)
		excuses(false)
		s.end()
		excuses(false)
		s.begin()
		time.Sleep(stalledAfter + 1)
		excuses(true)
		s.end()
		time.Sleep(AgentLate - 1)
		excuses(true)
		time.Sleep(time.Nanosecond)
		excuses(false)
	})
}

// TestRecoverWaitsForDescriptors checks that a log that can't be opened for lack of descriptors
// isn't treated as damaged.
func TestRecoverWaitsForDescriptors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	written := output.New(output.File(path))
	if err := errors.Join(written.Add(output.Record{Stream: runtime.Stdout, Data: []byte("x\n")}), written.Flush(), written.End()); err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	descriptors := func(most uint64) {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: limit.Max}); err != nil {
			t.Error(err)
		}
	}
	defer descriptors(limit.Cur)
	descriptors(0)
	times := 0
	log, err := recoverLog(output.File(path), func(error) bool {
		if times++; times == 3 {
			descriptors(limit.Cur)
		}
		return true
	})
	if err != nil || times != 3 || log.Next() != 2 {
		t.Fatalf("%+v after %d times, %v", log, times, err)
	}
	if err := log.End(); err != nil {
		t.Error(err)
	}
	descriptors(0)
	if _, err := recoverLog(output.File(path), func(error) bool { return false }); !errors.Is(err, unix.EMFILE) {
		t.Errorf("got %v, want %v", err, unix.EMFILE)
	}
}
