package session

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/output"
	"github.com/rockpool/rockpool/test/clustertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A bed is a host over a fake cluster with one runner. Its store in memory, disk and pool record
// their calls.
type bed struct {
	t      testing.TB
	fake   *clustertest.Fake
	host   *Host
	runner runtime.Runner
	lost   atomic.Int64
	ended  atomic.Int64
	taken  chan struct{} // closed when it is asked who leads: another server; nil means this one

	mu     sync.Mutex // guards what follows
	notes  []string
	refuse error // what the store fails with

	expected string // output of the case
}

func newBed(t testing.TB) *bed {
	t.Helper()
	b := &bed{t: t, fake: clustertest.NewFake()}
	b.runner = runtime.Runner{ID: runtime.NewRunnerID(), State: runtime.RunnerClaimed}
	b.host = &Host{
		Cluster: b.fake, Store: b, Disk: b, Logger: zap.NewNop(),
		Began: func(time.Duration) {}, Ended: b.end,
	}
	if err := b.fake.Start(t.Context(), b.runner.ID, runtime.Environment{}, runtime.PriorityRefill); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.fake.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// session returns a session of a command.
func (b *bed) session(quota *output.Quota, command ...string) *Session {
	b.host.Quota = quota
	x := runtime.Execution{
		ID: runtime.NewExecutionID(), RunnerID: b.runner.ID, Command: command, State: runtime.ExecutionPending, OutputLimit: 1 << 20,
		Timestamps: runtime.Timestamps{QueuedAt: time.Now()},
	}
	return b.host.New(b.runner, x, Begin{Env: []string{}, Queued: b.host.Boot.Moment(x.Timestamps.QueuedAt)}, output.New(output.File(filepath.Join(b.t.TempDir(), "log"))))
}

// run runs a session until the test, or the returned function, ends it.
func (b *bed) run(s *Session) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx, b)
	}()
	stop = func() { cancel(); <-ended }
	b.t.Cleanup(stop)
	return stop
}

func (b *bed) end(s *Session, x runtime.Execution) {
	if b.ended.Add(1); s.Execution().State == runtime.ExecutionFinished || x.State != runtime.ExecutionFinished {
		b.t.Errorf("%s is seen as %+v before the host is notified", x.State, s.Execution())
	}
}

func (b *bed) note(what string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse == nil {
		b.notes = append(b.notes, what)
	}
	return b.refuse
}

// noted returns the recorded calls except "put": whether RUNNING is stored depends on the machine's
// speed.
func (b *bed) noted() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.notes), func(what string) bool { return what == "put" })
}

func (b *bed) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = err
}

func (b *bed) PutExecution(context.Context, runtime.Execution, []byte, *int64) error {
	return b.note("put")
}

func (b *bed) FinishExecution(_ context.Context, x runtime.Execution, bytes int64) (int64, error) {
	return bytes, b.note("finish " + string(x.End.Outcome))
}

func (b *bed) NoteKilled(_ context.Context, _ runtime.ExecutionID, outcome runtime.Outcome) error {
	return b.note("kill " + string(outcome))
}

func (b *bed) NoteInputEnd(context.Context, runtime.ExecutionID, int64) error {
	return b.note("input end")
}

func (b *bed) Leads(context.Context) error {
	if b.taken == nil {
		return nil
	}
	close(b.taken)
	return runtime.Errorf(runtime.CodeClusterUnavailable, "another server leads")
}

func (b *bed) Neighbours(context.Context, runtime.RunnerID, time.Time) (bool, error) {
	return false, nil
}

func (b *bed) MakeRoom(context.Context, int64)        {}
func (b *bed) Wrote(int64)                            {}
func (b *bed) Lost(bytes int64, _ error)              { b.lost.Add(bytes) }
func (b *bed) Done(context.Context, runtime.RunnerID) { _ = b.note("done") }

func (b *bed) Release(ctx context.Context, id runtime.RunnerID) (bool, error) {
	return true, b.fake.Remove(ctx, id)
}

// ExpectedOutput returns the expected output of the bed.
func (b *bed) ExpectedOutput(_ context.Context, _ runtime.BatchPosition, offset int64, p []byte) (int, error) {
	if err := b.note("expected"); err != nil {
		return 0, err
	}
	return copy(p, b.expected[offset:]), nil
}
