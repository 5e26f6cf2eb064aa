package engine

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/executions"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/test/clustertest"
	"github.com/rockpool/rockpool/test/descriptors"
	"github.com/rockpool/rockpool/test/disk"
	"github.com/rockpool/rockpool/test/wait"
)

// causes returns the causes of an execution's lost output, in order, and the number of lost bytes.
func (b *bed) causes(t *testing.T, id runtime.ExecutionID) (all []runtime.LossCause, lost int64) {
	t.Helper()
	_, told := b.events(t, id, "")
	for _, e := range told {
		if e.Kind == events.Lost {
			all, lost = append(all, e.Cause), lost+e.Bytes
			if e.Reason == "" {
				t.Errorf("%s has no message", e.Cause)
			}
		}
	}
	return all, lost
}

// TestLossCausesOfDamagedLogs checks each cause, also after a restart.
func TestLossCausesOfDamagedLogs(t *testing.T) {
	for name, test := range map[string]struct {
		change func(path string) error
		want   runtime.LossCause // "" means nothing is lost
	}{
		"nothing":     {func(string) error { return nil }, ""},
		"deleted":     {os.Remove, runtime.LossDeleted},
		"cut off":     {func(path string) error { return os.Truncate(path, 50_000) }, runtime.LossDamaged},
		"emptied":     {func(path string) error { return os.Truncate(path, 0) }, runtime.LossDamaged},
		"changed":     {flip, runtime.LossDamaged},
		"appended to": {func(path string) error { return appendTo(path, "rubbish") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.environment(t, "a", 1)
			x := b.run(t, b.claim(t, "a").ID, "zeros", "100000")
			if page, err := b.Executions.Lines(asServer(t), x.ID, executions.LineQuery{MaxLines: 10}); err != nil || len(page.Lines) != 1 || !page.Lines[0].Truncated {
				t.Error(page, err)
			}
			if err := test.change(b.logs.Path(x.ID)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				causes, lost := b.causes(t, x.ID)
				if test.want == "" && len(causes) > 0 || test.want != "" && (!slices.Equal(causes, []runtime.LossCause{test.want}) || lost == 0) {
					t.Errorf("%d bytes are lost because of %q", lost, causes)
				}
				page, err := b.Executions.Lines(asServer(t), x.ID, executions.LineQuery{MaxLines: 10})
				if last := page.Lines[len(page.Lines)-1]; err != nil || last.Cause != test.want || last.Lost != lost || page.Next != 0 {
					t.Errorf("the last line has %d lost bytes because of %q, %v", last.Lost, last.Cause, err)
				}
				b.stop()
				b.start(t)
			}
		})
	}
}

// flip changes one byte in the middle of a file.
func flip(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text[len(text)/2] ^= 1
	return os.WriteFile(path, text, 0o600)
}

func appendTo(path, text string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(old, text...), 0o600)
}

// TestFullDiskIsTheLossCause checks that the cause is still known after a restart, when there is room.
func TestFullDiskIsTheLossCause(t *testing.T) {
	const limit = 1 << 20
	b, r := keeping(t, Config{KeepBytes: limit})
	nothing, err := b.Executions.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"cat"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	before := b.Stats().OutputLost
	b.logs.Quota().Add(limit)
	if _, err := b.Executions.WriteStdin(asServer(t), request.Stdin{ExecutionID: nothing.ID, Data: []byte("lost")}); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "it is lost", func() bool { return b.Stats().OutputLost > before })
	b.logs.Quota().Add(-limit)
	if _, err := b.Executions.WriteStdin(asServer(t), request.Stdin{ExecutionID: nothing.ID, Close: true}); err != nil {
		t.Fatal(err)
	}
	b.await(t, nothing.ID)
	for restarts := range 2 {
		causes, lost := b.causes(t, nothing.ID)
		if lost != 4 || !slices.Equal(causes, []runtime.LossCause{runtime.LossStorageFull}) {
			t.Errorf("after %d restarts %d bytes are lost because of %q", restarts, lost, causes)
		}
		b.stop()
		b.config.KeepBytes = 0
		b.start(t)
	}
}

// TestOutputAfterAFullDiskIsKept uses an execution whose output was written in part.
func TestOutputAfterAFullDiskIsKept(t *testing.T) {
	b, r := keeping(t, Config{KeepBytes: 1 << 20})
	x := b.run(t, r.ID, "zeros", "3000000")
	for restarts := range 2 {
		causes, lost := b.causes(t, x.ID)
		if lost == 0 || slices.ContainsFunc(causes, func(c runtime.LossCause) bool { return c != runtime.LossStorageFull }) {
			t.Errorf("after %d restarts %d bytes are lost because of %q", restarts, lost, causes)
		}
		b.stop()
		b.config.KeepBytes = 0
		b.start(t)
	}
}

// TestLossCauseSurvivesAPowerCut truncates a log between two records, which leaves no evidence. An
// earlier recorded loss must not be reported as the cause.
func TestLossCauseSurvivesAPowerCut(t *testing.T) {
	for name, all := range map[string]bool{"the last record": false, "all": true} {
		t.Run(name, func(t *testing.T) { powerCut(t, all) })
	}
}

// powerCut removes the last record of a log, or everything written after a loss.
func powerCut(t *testing.T, all bool) {
	const limit = 1 << 20
	b, r := keeping(t, Config{KeepBytes: limit})
	x, err := b.Executions.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"cat"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	prints := func(text string, counted func() int64) {
		t.Helper()
		before := counted()
		if _, err := b.Executions.WriteStdin(asServer(t), request.Stdin{ExecutionID: x.ID, Data: []byte(text)}); err != nil {
			t.Fatal(err)
		}
		wait.For(t, text, func() bool { return counted() == before+int64(len(text)) })
	}
	b.logs.Quota().Add(limit)
	prints("lost", func() int64 { return b.Stats().OutputLost })
	b.logs.Quota().Add(-limit)
	prints("kept", func() int64 { return b.Stats().Output })
	info, err := os.Stat(b.logs.Path(x.ID))
	if err != nil {
		t.Fatal(err)
	}
	left, size, gone := "kept", info.Size(), int64(len("lost"+"cut off"))
	if all {
		left, size, gone = "", 0, gone+int64(len("kept"))
	}
	prints("cut off", func() int64 { return b.Stats().Output })
	wait.For(t, "the agent has forgotten it", func() bool {
		conn, err := b.fake.Dial(asServer(t), r.ID)
		if err != nil {
			return false
		}
		answer, err := agent.PingAgent(asServer(t), conn)
		return err == nil && len(answer.Executions) == 1 && answer.Executions[0].Held == int64(len("lost"+"kept"+"cut off"))
	})
	b.stop()
	if err := os.Truncate(b.logs.Path(x.ID), size); err != nil {
		t.Fatal(err)
	}
	b.start(t)
	if _, err := b.Executions.WriteStdin(asServer(t), request.Stdin{ExecutionID: x.ID, Data: []byte("after"), Close: true}); err != nil {
		t.Fatal(err)
	}
	b.await(t, x.ID)
	text, _ := b.events(t, x.ID, "")
	if causes, lost := b.causes(t, x.ID); text != left+"after" || lost != gone || !slices.Equal(causes, []runtime.LossCause{runtime.LossStorageFull, runtime.LossUnknown}) {
		t.Errorf("%q exists, %d bytes are lost because of %q", text, lost, causes)
	}
}

// TestEndOfALossIsKnownWithoutBeingStored covers a server that was killed between the write and its
// record, and older servers.
func TestEndOfALossIsKnownWithoutBeingStored(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	x := b.run(t, b.claim(t, "a").ID, "echo", "x")
	for from, want := range map[int64]runtime.LossCause{0: "", 2: runtime.LossStorageFull} {
		x.Losses = []runtime.OutputLoss{{From: from, Cause: runtime.LossStorageFull}}
		s := b.host.Resume(asServer(t), store.Unfinished{Execution: x}, nil, b.logs.Location(x.ID), b.notRestored)
		if cause, _ := s.Execution().LossAt(2); cause != want {
			t.Errorf("from %d on: behind the log it is %q, not %q", from, cause, want)
		}
		if err := s.Log().End(); err != nil {
			t.Error(err)
		}
	}
}

// brokenDisk runs an engine with its logs on a separate disk.
func brokenDisk(t *testing.T) (*bed, disk.Disk) {
	t.Helper()
	d := disk.New(t)
	return onDisk(t, d), d
}

// onDisk runs an engine with its logs on d.
func onDisk(t *testing.T, d disk.Disk) *bed {
	t.Helper()
	b := &bed{fake: clustertest.NewFake(), dir: t.TempDir()}
	b.cluster = b.fake
	if err := os.Symlink(d.Dir, filepath.Join(b.dir, "output")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.fake.Close(); err != nil {
			t.Error(err)
		}
	})
	b.start(t)
	b.environment(t, "a", 1)
	return b
}

// TestUnwrittenOutputIsReportedAsLost uses a disk on which writes reach only the page cache.
func TestUnwrittenOutputIsReportedAsLost(t *testing.T) {
	d := disk.NewThin(t)
	b := onDisk(t, d)
	d.Starve(t)
	wait.For(t, "it is down, and says why", func() bool { // a busy disk doesn't answer in time: that is DOWN, too
		c := b.component(t, "output")
		return c.Status == activity.HealthDown && (strings.Contains(c.Message, unix.EIO.Error()) || strings.Contains(c.Message, unix.ENOSPC.Error()))
	})
	d.Feed(t)
	wait.For(t, "all is well", func() bool { return b.component(t, "output").Status == activity.HealthOK })
}

// TestOutputWritesResumeAfterAFailure checks that Health reports the failure and its end, even if
// nothing is printed afterwards, and that the lost output has a cause.
func TestOutputWritesResumeAfterAFailure(t *testing.T) {
	b, d := brokenDisk(t)
	r := b.claim(t, "a")
	x, err := b.Executions.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"cat"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	printed := func(text string, end bool) {
		t.Helper()
		if _, err := b.Executions.WriteStdin(asServer(t), request.Stdin{ExecutionID: x.ID, Data: []byte(text), Close: end}); err != nil {
			t.Fatal(err)
		}
	}
	printed("before\n", false)
	wait.For(t, "it is written", func() bool { return b.Stats().Output == int64(len("before\n")) })
	d.Lock(t, b.logs.Path(x.ID))
	d.Lock(t, d.Dir)
	printed("lost\n", false)
	wait.For(t, "the loss is counted", func() bool { return b.Stats().OutputLost == 5 })
	wait.For(t, "the loss is reported", func() bool { return b.component(t, "output").Status != activity.HealthOK })
	d.Unlock(t, d.Dir)
	d.Unlock(t, b.logs.Path(x.ID))
	wait.For(t, "all is well", func() bool { return b.component(t, "output").Status == activity.HealthOK })
	printed("after\n", true)
	b.await(t, x.ID)
	for range 2 {
		text, _ := b.events(t, x.ID, "")
		if causes, lost := b.causes(t, x.ID); text != "before\nafter\n" || lost != 5 || !slices.Equal(causes, []runtime.LossCause{runtime.LossUnwritable}) {
			t.Errorf("%q exists, %d bytes are lost because of %q", text, lost, causes)
		}
		b.stop()
		b.start(t)
	}
}

// TestUncreatableLogIsReportedAsLoss checks that Health reports the fault before any output is lost.
func TestUncreatableLogIsReportedAsLoss(t *testing.T) {
	b, d := brokenDisk(t)
	wait.For(t, "all is well", func() bool { return b.component(t, "output").Status == activity.HealthOK })
	d.Lock(t, d.Dir)
	wait.For(t, "it is down", func() bool { c := b.component(t, "output"); return c.Status == activity.HealthDown && c.Message != "" })
	d.Unlock(t, d.Dir)
	wait.For(t, "all is well", func() bool { return b.component(t, "output").Status == activity.HealthOK })
	d.Error(t)
	wait.For(t, "it is down", func() bool { return b.component(t, "output").Status == activity.HealthDown })
	if h := b.Health(asServer(t)); h.Status != activity.HealthDown {
		t.Errorf("%+v", h)
	}
}

// TestUnwritableStoreIsDown checks that the server is DOWN, and that the message names the
// component and what to do.
func TestUnwritableStoreIsDown(t *testing.T) {
	d := disk.New(t)
	s, err := store.Open(asServer(t), filepath.Join(d.Dir, "db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // it can't write its end
	fake := clustertest.NewFake()
	b := &bed{Engine: New(fake, s, Config{Dir: t.TempDir(), Logger: zap.NewNop()})}
	defer b.logs.Close()
	wait.For(t, "all is well", func() bool { return b.Health(asServer(t)).Status == activity.HealthOK })
	d.Error(t)
	wait.For(t, "the store is DOWN, and nothing else", func() bool { // a busy disk takes its time
		h, c := b.Health(asServer(t)), b.component(t, "store")
		return h.Status == activity.HealthDown && c.Status == activity.HealthDown && strings.Contains(c.Message, "read-only") && b.component(t, "output").Status == activity.HealthOK
	})
	if err := fake.Close(); err != nil {
		t.Error(err)
	}
}

// TestLogsOfOlderServersAreRead uses a log whose size an older server didn't record.
func TestLogsOfOlderServersAreRead(t *testing.T) {
	b := newBed(t)
	x := runtime.Execution{ID: runtime.NewExecutionID(), State: runtime.ExecutionPending, Timestamps: runtime.Timestamps{QueuedAt: time.Now(), StartedAt: time.Now()}}
	if _, _, err := b.store.AddExecution(asServer(t), x, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	x.State, x.Usage.OutputBytes, x.Timestamps.FinishedAt = runtime.ExecutionFinished, 100, time.Now()
	if _, err := b.store.FinishExecution(asServer(t), x, 0); err != nil {
		t.Fatal(err)
	}
	if causes, _ := b.causes(t, x.ID); !slices.Equal(causes, []runtime.LossCause{runtime.LossDeleted}) {
		t.Errorf("without a file: %q", causes)
	}
	if err := os.MkdirAll(filepath.Dir(b.logs.Path(x.ID)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.logs.Path(x.ID), nil, fs.FileMode(0o600)); err != nil {
		t.Fatal(err)
	}
	if causes, _ := b.causes(t, x.ID); !slices.Equal(causes, []runtime.LossCause{runtime.LossUnknown}) {
		t.Errorf("with an empty one: %q", causes)
	}
}

// TestWaitingRestoreLogsItsReason checks the server's log, because the API doesn't answer yet.
func TestWaitingRestoreLogsItsReason(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	x := b.run(t, b.claim(t, "a").ID, "echo", "x")
	core, logs := observer.New(zap.WarnLevel)
	b.host.Logger = zap.New(core)
	none, all := descriptors.Limit(t)
	none()
	resumed := make(chan struct{})
	go func() {
		defer close(resumed)
		if log := b.host.Resume(asServer(t), store.Unfinished{Execution: x}, nil, b.logs.Location(x.ID), b.notRestored).Log(); log.Next() != 2 {
			t.Errorf("%+v", log)
		}
	}()
	wait.For(t, "the log says why", func() bool {
		said := logs.FilterMessageSnippet("LimitNOFILE").All()
		return len(said) == 1 && said[0].ContextMap()["execution"] == string(x.ID)
	})
	all()
	<-resumed
}
