package batch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// passing returns an execution that exited with a status.
func passing(number, status int) runtime.Execution {
	return runtime.Execution{
		ID: runtime.ExecutionID(rune('a' + number)), State: runtime.ExecutionFinished,
		End: runtime.End{Outcome: runtime.OutcomeExited, ExitCode: status},
	}
}

// host begins every case, and records which.
func host(begun *[]int, store func(runtime.Batch) error) *Host {
	return &Host{
		Begin: func(_ context.Context, _ runtime.Batch, _ string, number int, _ <-chan struct{}) (runtime.Execution, error) {
			*begun = append(*begun, number)
			return passing(number, 0), nil
		},
		Await: func(context.Context, runtime.ExecutionID, <-chan struct{}) (runtime.Execution, error) {
			return passing(0, 0), nil
		},
		Finish: func(_ context.Context, b runtime.Batch) error { return store(b) },
		Ended:  func(*Coordinator) {},
		Logger: zap.NewNop(),
	}
}

// TestEndIsStoredBeforeItIsShown delays the store, and checks that no outcome is visible before.
func TestEndIsStoredBeforeItIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun []int
		var l *Coordinator
		tries := 0
		l = host(&begun, func(b runtime.Batch) error {
			if tries++; l.Batch().State == runtime.BatchFinished || b.Outcome != runtime.BatchCompleted {
				t.Errorf("%+v is shown, and %+v stored", l.Batch(), b)
			}
			if tries < 10 {
				return errors.New("the disk is full")
			}
			return nil
		}).New(runtime.Batch{ID: "b", CaseCount: 3, State: runtime.BatchRunning}, "")
		l.host.Ended = func(l *Coordinator) {
			if l.Batch().State == runtime.BatchFinished {
				t.Error("it is visible before the host is notified")
			}
		}
		l.Run(t.Context())
		if end := l.Batch(); tries != 10 || end.State != runtime.BatchFinished || end.FinishedAt.IsZero() || end.Progress.Ended != 3 || len(begun) != 3 {
			t.Errorf("%d tries, %v, %+v", tries, begun, end)
		}
	})
}

// TestNoBatchEndsBeforeItBegan has a time of an earlier server whose clock was ahead.
func TestNoBatchEndsBeforeItBegan(t *testing.T) {
	var begun []int
	queued := time.Now().Add(time.Hour)
	l := host(&begun, func(runtime.Batch) error { return nil }).New(runtime.Batch{ID: "b", CaseCount: 1, State: runtime.BatchRunning, QueuedAt: queued}, "")
	l.Run(t.Context())
	if at := l.Batch().FinishedAt; at.Before(queued) {
		t.Errorf("it was queued at %v and ended at %v", queued, at)
	}
}

// TestStoppedServerDoesNotEndTheBatch checks that a stopping server leaves the batch unchanged.
func TestStoppedServerDoesNotEndTheBatch(t *testing.T) {
	var begun []int
	l := host(&begun, func(runtime.Batch) error { t.Error("it is stored"); return nil }).New(runtime.Batch{ID: "b", CaseCount: 3, State: runtime.BatchRunning}, "")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	l.Run(ctx)
	if now := l.Batch(); now.State != runtime.BatchRunning {
		t.Errorf("%+v", now)
	}
}

// TestRecalledBatchContinues checks that ended cases of an earlier server are counted, and that the
// last begun one, whose end may not have been judged, is continued.
func TestRecalledBatchContinues(t *testing.T) {
	for name, test := range map[string]struct {
		known map[int]runtime.Execution
		first int // that is begun again
		begun int
	}{
		"no case begun: starts at the build":    {nil, runtime.BuildCase, 0},
		"build begun: starts at the build":      {map[int]runtime.Execution{runtime.BuildCase: passing(0, 0)}, runtime.BuildCase, 0},
		"two cases begun: continues the second": {map[int]runtime.Execution{runtime.BuildCase: passing(0, 0), 0: passing(1, 0), 1: {ID: "x", State: runtime.ExecutionRunning}}, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var begun []int
			l := host(&begun, func(runtime.Batch) error { return nil }).New(runtime.Batch{ID: "b", HasBuild: true, CaseCount: 3, State: runtime.BatchRunning}, "")
			l.Recall(test.known)
			if now := l.Batch(); now.Progress.Begun != test.begun || now.Progress.Ended != max(0, test.begun-1) {
				t.Errorf("%+v", now.Progress)
			}
			l.Run(t.Context())
			state, _ := l.State()
			if begun[0] != test.first || state.Batch.Progress != (runtime.BatchProgress{Begun: 3, Ended: 3}) || len(state.Executions) != 4 {
				t.Errorf("%v, %+v", begun, state)
			}
		})
	}
}
