package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/output"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/timing"
	"github.com/rockpool/rockpool/test/clock"
	"github.com/rockpool/rockpool/test/clustertest"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/refusal"
	"github.com/rockpool/rockpool/test/wait"
)

// keeping runs an engine with limits on what it keeps, and a claimed runner.
func keeping(t *testing.T, config Config) (*bed, runtime.Runner) {
	t.Helper()
	b := &bed{fake: clustertest.NewFake(), dir: t.TempDir(), config: config}
	b.cluster = b.fake
	t.Cleanup(func() {
		if err := b.fake.Close(); err != nil {
			t.Error(err)
		}
	})
	b.start(t)
	b.environment(t, "a", 1)
	return b, b.claim(t, "a")
}

func (b *bed) collected(t *testing.T, id runtime.ExecutionID) bool {
	t.Helper()
	_, err := b.Executions.Get(asServer(t), id, 0)
	if err != nil && runtime.CodeOf(err) != runtime.CodeExecutionNotFound {
		t.Fatal(err)
	}
	return err != nil
}

// TestStepsAgeNoExecution has a clock that began before the wall clock was stepped. Retention compares the times of
// executions and batches with such a clock.
func TestStepsAgeNoExecution(t *testing.T) {
	for _, step := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
		b := newBed(t)
		b.stop()
		b.clock = timing.Clock{Began: clock.Step(time.Now(), -step)}
		b.start(t)
		b.environment(t, "a", 1)
		r := b.claim(t, "a")
		before := b.clock.Now().Round(0)
		x := b.run(t, r.ID, "true")
		l, _, err := b.Batches.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"true"}}, request.Batch{Cases: make([]request.Case, 1)})
		if err != nil {
			t.Fatal(err)
		}
		wait.For(t, "the batch ends", func() bool {
			l, err = b.Batches.Get(asServer(t), l.ID)
			return err != nil || l.State == runtime.BatchFinished
		})
		for _, at := range []time.Time{x.Timestamps.QueuedAt, x.Timestamps.FinishedAt, l.QueuedAt, l.FinishedAt} {
			if at = at.Round(0); at.Before(before) || at.After(b.clock.Now().Round(0)) {
				t.Errorf("after a step of %v an execution has the time %v, not after %v", step, at, before)
			}
		}
	}
}

func TestOldExecutionsAreCollected(t *testing.T) {
	b, r := keeping(t, Config{Keep: 500 * time.Millisecond})
	running := b.startCommand(t, request.Start{RunnerID: r.ID, Command: []string{"sleep", "60"}})
	in := request.Start{RunnerID: r.ID, Command: []string{"cat"}, Stdin: true, Key: "k"}
	x, err := b.Executions.Start(asServer(t), in)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Executions.WriteStdin(asServer(t), request.Stdin{ExecutionID: x.ID, Data: make([]byte, 1000000)}); err != nil {
		t.Fatal(err)
	}
	file := b.logs.Path(x.ID)
	reading, err := b.Executions.Events(asServer(t), x.ID, "") // nothing was read yet: it has no file open
	if err != nil {
		t.Fatal(err)
	}
	defer reading.Close()
	b.endStdin(t, x.ID)
	wait.For(t, "it is collected", func() bool { return b.collected(t, x.ID) })
	wait.For(t, "its output is removed", func() bool { _, err := os.Stat(file); return errors.Is(err, os.ErrNotExist) })

	var kinds []events.Kind
	for {
		event, err := reading.Next(asServer(t))
		if err != nil {
			break
		}
		kinds = append(kinds, event.Kind)
		if event.Kind == events.Lost && (event.Bytes != 1000000 || event.Cause != runtime.LossRetention || event.Reason == "") {
			t.Errorf("%+v", event)
		}
	}
	if fmt.Sprint(kinds) != fmt.Sprint([]events.Kind{events.Started, events.Lost, events.Finished}) {
		t.Errorf("a reader in the middle got %v", kinds)
	}
	_, err = b.Executions.Events(asServer(t), x.ID, "")
	refusal.Want(t, err, runtime.CodeExecutionNotFound, "")
	_, _, _, err = b.output(x.ID, "", 1000)
	refusal.Want(t, err, runtime.CodeExecutionNotFound, "")
	if b.collected(t, running.ID) {
		t.Error("one that runs was collected")
	}
	// Its key isn't free: nothing is started twice.
	_, err = b.Executions.Start(asServer(t), in)
	refusal.Want(t, err, runtime.CodeExecutionNotFound, "")
	in.Command = []string{"true"}
	_, err = b.Executions.Start(asServer(t), in)
	refusal.Want(t, err, runtime.CodeConflict, "")
}

// outputBytes returns the size of the files in the output directory.
func (b *bed) outputBytes(t *testing.T) (sum int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(b.dir, "output", "??", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if info, err := os.Stat(file); err == nil {
			sum += info.Size()
		}
	}
	return sum
}

func TestOutputMakesRoomForOutput(t *testing.T) {
	const limit = 8 << 20
	b, r := keeping(t, Config{KeepBytes: limit})
	var ids []runtime.ExecutionID
	for i := range 12 {
		if i == 6 { // what is kept is known to the next server too
			b.stop()
			b.start(t)
		}
		x := b.run(t, r.ID, "zeros", "2000000")
		if x.End.Outcome != runtime.OutcomeExited {
			t.Fatalf("%+v", x.End)
		}
		if output, all := b.events(t, x.ID, ""); len(output) != 2000000 {
			t.Errorf("%d bytes in %d events", len(output), len(all))
		}
		if size := b.outputBytes(t); size > limit {
			t.Errorf("%d bytes of output are kept", size)
		}
		ids = append(ids, x.ID)
	}
	gone := 0
	for i, id := range ids {
		if b.collected(t, id) {
			if gone++; gone != i+1 {
				t.Errorf("execution %d was collected before an older one", i)
			}
		}
	}
	if gone < 8 || gone > 10 {
		t.Errorf("%d of 12 were collected", gone)
	}
}

// TestOutputBeyondTheQuotaIsReportedAsLost leaves no finished execution to remove. The loss must
// still be reported after a restart, when the log doesn't know how much was printed.
func TestOutputBeyondTheQuotaIsReportedAsLost(t *testing.T) {
	const limit, size = 1 << 20, 3 << 20
	b, r := keeping(t, Config{KeepBytes: limit})
	x, err := b.Executions.Start(asServer(t), request.Start{RunnerID: r.ID, Shell: ptr("lines 3145728"), Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	lossAndData := func(id runtime.ExecutionID) (lost, data int64) {
		output, all := b.events(t, id, "")
		for _, e := range all {
			lost += e.Bytes
		}
		return lost, int64(len(output))
	}
	if end := b.await(t, x.ID).End; end.Outcome != runtime.OutcomeExited {
		t.Fatalf("%+v", end)
	}
	lost, data := lossAndData(x.ID)
	if lost+data != size || data == 0 || lost == 0 || b.outputBytes(t) > limit {
		t.Errorf("%d lost and %d stored of %d; %d on the disk", lost, data, size, b.outputBytes(t))
	}
	all, _, end, err := b.output(x.ID, "", 4<<20)
	lost, data = 0, 0
	for _, e := range all {
		lost, data = lost+e.Bytes, data+int64(len(e.Data))
	}
	if lost+data != size || lost == 0 || !end || err != nil {
		t.Errorf("a page has %d lost and %d stored, %v", lost, data, err)
	}
	told := false
	for _, c := range b.Health(asServer(t)).Components {
		told = told || c.Name == "output" // it may be well again
	}
	if !told {
		t.Error("Health says nothing")
	}
}

// TestOutputLeavesRoomForItsEnd checks that an execution that used up the limit isn't removed for
// the few bytes of its outcome.
func TestOutputLeavesRoomForItsEnd(t *testing.T) {
	b, r := keeping(t, Config{KeepBytes: 12 << 10})
	x := b.run(t, r.ID, "count", "3000", "1") // small writes: they use up the last block
	if over := b.logs.Quota().Over(0); over > 0 || b.collected(t, x.ID) {
		t.Errorf("its end takes %d bytes more than may be kept", over)
	}
}

// TestLossCausesSurviveARestart uses an agent that has forgotten output which an earlier server
// acknowledged but could not write.
func TestLossCausesSurviveARestart(t *testing.T) {
	b, r := keeping(t, Config{KeepBytes: 12 << 10})
	const lines = 6000
	x := b.startCommand(t, request.Start{RunnerID: r.ID, Command: []string{"count", fmt.Sprint(lines), "0", fmt.Sprint(lines - 1000)}, Stdin: true})
	b.acknowledged(t, r.ID, x.ID, 13<<10) // more than the log can hold
	b.stop()
	b.config.KeepBytes = 0
	b.start(t)
	b.endStdin(t, x.ID)
	if end := b.await(t, x.ID).End; end.Outcome != runtime.OutcomeExited || end.ExitCode != 7 {
		t.Fatalf("%+v", end)
	}
	want, at := (&follower{lines: lines}).want(), int64(0)
	_, all := b.events(t, x.ID, "")
	losses := 0
	for _, e := range all {
		if e.Kind == events.Lost {
			losses++
		}
		if e.Kind == events.Output && !strings.HasPrefix(want[at:], string(e.Data)) {
			t.Fatalf("at %d: %q", at, e.Data)
		}
		at += e.Bytes + int64(len(e.Data))
	}
	if at != int64(len(want)) || losses == 0 {
		t.Errorf("%d bytes reported of %d, %d losses", at, len(want), losses)
	}
}

// TestFullDisk checks that mutations that need the store return STORAGE_FULL, that running
// executions continue, and that everything works again once there is room.
func TestFullDisk(t *testing.T) {
	need.Sandboxes(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Fatalf("mount a tmpfs: %v", err)
	}
	b := &bed{fake: clustertest.NewFake(), dir: dir}
	b.cluster = b.fake
	t.Cleanup(func() { // after the engine's own
		err := errors.Join(b.fake.Close(), unix.Unmount(dir, 0))
		if err != nil {
			t.Error(err)
		}
	})
	b.start(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	running := b.startCommand(t, request.Start{RunnerID: r.ID, Command: []string{"cat"}, Stdin: true})

	ballast := filepath.Join(dir, "ballast")
	file, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = file.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("got %v, want %v", err, unix.ENOSPC)
	}
	var ids []runtime.ExecutionID
	for range 10_000 { // the log of the database has some room of its own
		x, err := b.Executions.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"true"}})
		if err != nil {
			refusal.Want(t, err, runtime.CodeStorageFull, "")
			break
		}
		ids = append(ids, x.ID)
	}
	if b.Health(asServer(t)).Status != activity.HealthDown {
		t.Error("Health doesn't say that the store is full")
	}
	if n, err := b.Executions.WriteStdin(asServer(t), request.Stdin{ExecutionID: running.ID, Data: []byte("x"), Close: true}); n != 1 || err != nil {
		t.Errorf("the running execution accepts no stdin: %d, %v", n, err)
	}
	if err := errors.Join(file.Close(), os.Remove(ballast)); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "Health is well", func() bool {
		for _, c := range b.Health(asServer(t)).Components {
			if c.Name == "store" {
				return c.Status == activity.HealthOK
			}
		}
		return false
	})
	for _, id := range append(ids, running.ID) {
		if end := b.await(t, id).End; end.Outcome != runtime.OutcomeExited {
			t.Errorf("%+v", end)
		}
	}
	if x := b.run(t, r.ID, "true"); x.End.Outcome != runtime.OutcomeExited {
		t.Errorf("%+v", x.End)
	}
}

// TestUnremovableOutputStaysInTheQuota also checks that it is reported, and removed once that is
// possible.
func TestUnremovableOutputStaysInTheQuota(t *testing.T) {
	b, d := brokenDisk(t)
	x := b.run(t, b.claim(t, "a").ID, "echo", "x")
	b.stop()
	b.config.Keep, b.config.KeepBytes = time.Millisecond, 1<<20
	d.Lock(t, filepath.Dir(b.logs.Path(x.ID)))
	b.start(t)
	wait.For(t, "it is collected", func() bool { return b.collected(t, x.ID) })
	wait.For(t, "it is reported", func() bool { return b.component(t, "retention").Status == activity.HealthDegraded })
	if used, _ := b.logs.Quota().Used(); used < output.DiskBytes(1) {
		t.Errorf("%d bytes are counted", used)
	}
	d.Unlock(t, filepath.Dir(b.logs.Path(x.ID)))
	wait.For(t, "all is well", func() bool { return b.component(t, "retention").Status == activity.HealthOK })
	if _, err := os.Stat(b.logs.Path(x.ID)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its output still exists got %v, want %v", err, os.ErrNotExist)
	}
	if used, _ := b.logs.Quota().Used(); used != 0 {
		t.Errorf("%d bytes are counted, want 0", used)
	}
}
