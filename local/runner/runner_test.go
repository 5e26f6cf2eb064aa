package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/runtime"
)

// pass lets the bubble's time pass, and everything settle.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func want[T comparable](t *testing.T, what string, got []T, want ...T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestLifeOfATask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		task, leave := start(w, starting)
		defer leave()
		pass(time.Second)
		if s := w.last(); s.State != runtime.RunnerIdle || s.Process == nil || s.Process.PID != 1 || s.Slot == nil || *s.Slot != 7 {
			t.Errorf("it is %+v", s)
		}
		task.Stop(Exit{runtime.GoneReleased, "first"})
		task.Stop(Exit{runtime.GoneUnknown, "second"})
		if err := task.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, "states", w.phases, runtime.RunnerIdle, runtime.RunnerStopping, runtime.RunnerGone)
		want(t, "calls", w.calls, "prepare", "create", "ready", "release 7")
		if s := w.last(); s.Reason != runtime.GoneReleased || s.Message != "first" || w.destroy != 1 {
			t.Errorf("it ended as %+v, destroyed %d times", s, w.destroy)
		}
	})
}

func TestEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		task, leave := start(w, starting)
		defer leave()
		pass(time.Second)
		w.procs[0].end()
		if err := task.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, "states", w.phases, runtime.RunnerIdle, runtime.RunnerGone) // and never started again
		want(t, "calls", w.calls, "prepare", "create", "ready", "exited", "release 7")
		if len(w.states) != 2 {
			t.Errorf("it was saved %d times: its removal changed nothing, want 2", len(w.states))
		}
		if s := w.last(); s.Reason != runtime.GoneAgentDied || s.Message == "" {
			t.Errorf("it ended as %+v, want AGENT_DIED with a message", s)
		}
	})
}

// A task that can't be watched is removed.
func TestUnwatchableTaskIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{blind: true, deaf: true}
		task, leave := start(w, starting)
		defer leave()
		if err := task.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := w.last(); s.State != runtime.RunnerGone || s.Reason != runtime.GoneUnknown || !w.procs[0].gone() {
			t.Errorf("it is %+v", s)
		}
	})
}

func TestStartsThatFail(t *testing.T) {
	broken := &sandbox.Failure{Message: "broken", Err: errors.New("detail")}
	for name, test := range map[string]struct {
		starts, unusable, destroys, saves []error
		state                             runtime.RunnerState
		attempts, restarts                int
		message                           string
	}{
		"one failure: starts again":                    {starts: []error{broken}, state: runtime.RunnerIdle, attempts: 2, restarts: 1},
		"failure, then unusable: starts again":         {starts: []error{broken}, unusable: []error{broken}, state: runtime.RunnerIdle, attempts: 3, restarts: 2},
		"every start fails: GONE":                      {starts: []error{broken, broken, broken, broken}, state: runtime.RunnerGone, attempts: 3, restarts: 2, message: "broken"},
		"unrecoverable failure: GONE at once":          {starts: []error{&sandbox.Failure{Message: "never", Unrecoverable: true, Err: errors.New("x")}}, state: runtime.RunnerGone, attempts: 1, message: "never"},
		"unknown failures: GONE":                       {starts: []error{errors.New("a"), errors.New("b"), errors.New("c")}, state: runtime.RunnerGone, attempts: 3, restarts: 2, message: "it couldn't be started; the server's log says why"},
		"failure, one removal fails: starts again":     {starts: []error{broken}, destroys: []error{errors.New("busy")}, state: runtime.RunnerIdle, attempts: 2, restarts: 1},
		"failure, every removal fails: GONE":           {starts: []error{broken}, destroys: slices.Repeat([]error{errors.New("busy")}, 9), state: runtime.RunnerGone, attempts: 1, restarts: 2, message: "broken"},
		"first save fails: starts again":               {saves: []error{errors.New("full")}, state: runtime.RunnerIdle, attempts: 2, restarts: 1},
		"two failures and a failed save: starts again": {starts: []error{broken, broken}, saves: []error{errors.New("full")}, state: runtime.RunnerIdle, attempts: 3, restarts: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{starts: test.starts, unusable: test.unusable, destroys: test.destroys, saves: test.saves}
				_, leave := start(w, starting)
				pass(time.Minute)
				leave()
				s := w.last()
				if s.State != test.state || w.counts.Read().Restarts != int64(test.restarts) || s.Message != test.message || (s.Reason == runtime.GoneStartFailed) != (test.state == runtime.RunnerGone) {
					t.Errorf("it is %+v", s)
				}
				attempts, prepares := 0, 0
				for _, call := range w.calls {
					if call == "create" {
						attempts++
					}
					if call == "prepare" {
						prepares++
					}
				}
				if attempts != test.attempts || prepares != 1 {
					t.Errorf("%d attempts, %d prepares", attempts, prepares)
				}
			})
		})
	}
}

// Between attempts the reason of the failure is shown.
func TestFailureIsReportedBetweenAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{starts: []error{&sandbox.Failure{Message: "broken", Err: errors.New("detail")}}}
		_, leave := start(w, starting)
		pass(500 * time.Millisecond)
		if s := w.last(); s.State != runtime.RunnerStarting || s.Message != "broken" {
			t.Errorf("it is %+v", s)
		}
		pass(2 * time.Second)
		if s := w.last(); s.State != runtime.RunnerIdle || s.Message != "" {
			t.Errorf("it is %+v", s)
		}
		leave()
	})
}

// Events for clients are saved with the state, and contain only the public part of an error.
func TestClientsSeeOnlyPublicEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{starts: []error{&sandbox.Failure{Message: "broken", Err: errors.New("/secret/path")}}}
		_, leave := start(w, starting)
		pass(5 * time.Second)
		running := told(w.last())
		want(t, "while it runs", running[:4], "It was placed on a machine.", "Its sandbox is being prepared.", "It could not be started: broken.", running[3])
		want(t, "while it runs", running[4:], "Its sandbox is being prepared.", "Its first process was started.", "Its agent answered, so it can be claimed.")
		leave()
		again := w.runner(w.last())
		if err := again.Restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		again.Stop(Exit{runtime.GoneDrained, "drained"})
		again.Run(t.Context())
		ended := told(w.last())
		want(t, "at its end", ended[len(ended)-3:], "It kept running while no server was connected.", "It is being stopped: drained.", "All its processes have ended.")
	})
}

func told(s Status) (all []string) {
	for _, event := range s.Events {
		all = append(all, event.Message())
	}
	return all
}

func TestStopWhileItStarts(t *testing.T) {
	for _, after := range []time.Duration{0, 5 * time.Millisecond, 500 * time.Millisecond} { // before Start, during Start, in a pause
		synctest.Test(t, func(t *testing.T) {
			w := &world{starts: []error{errors.New("x"), errors.New("x"), errors.New("x")}}
			task := w.runner(starting)
			if after == 0 {
				task.Stop(Exit{})
			}
			ctx, cancel := context.WithCancel(context.Background())
			leave := runs(ctx, cancel, task)
			pass(after)
			began := time.Now()
			task.Stop(Exit{})
			if err := task.Wait(t.Context()); err != nil || time.Since(began) > 0 {
				t.Errorf("%v after %s", err, time.Since(began))
			}
			if w.last().State != runtime.RunnerGone || !slices.Contains(w.phases, runtime.RunnerStopping) {
				t.Errorf("phases %v", w.phases)
			}
			leave()
		})
	}
}

// A stop hook that fails, for example for lack of open files, runs again.
func TestFailedStopHookIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := errors.New("busy")
		w := &world{stops: []error{busy, busy}}
		task, leave := start(w, starting)
		defer leave()
		pass(time.Second)
		task.Stop(Exit{})
		for _, failing := range []error{busy, busy, nil} {
			if err := task.Wait(t.Context()); !errors.Is(err, failing) {
				t.Errorf("%v, want %v", err, failing)
			}
		}
		if s := w.last(); s.State != runtime.RunnerGone || s.Leak != "" || w.destroy != 1 {
			t.Errorf("it is %+v, after %d removals", s, w.destroy)
		}
	})
}

func TestRemovalIsRetriedFiveTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := errors.New("busy")
		w := &world{deaf: true, destroys: []error{busy, busy, busy, busy, busy, busy}}
		task, leave := start(w, starting)
		defer leave()
		pass(time.Second)
		began := time.Now()
		task.Stop(Exit{})
		for i, at := range []time.Duration{1, 6, 16, 36, 76} { // seconds; the first waits for the signal
			if err := task.Wait(t.Context()); !errors.Is(err, busy) || time.Since(began) != at*time.Second {
				t.Errorf("try %d: %v after %s", i+1, err, time.Since(began))
			}
		}
		synctest.Wait()
		if s := w.last(); s.State != runtime.RunnerStopping || !strings.Contains(s.Leak, "busy") {
			t.Errorf("it is %+v", s)
		}
		pass(time.Hour)
		if w.destroy != 5 {
			t.Errorf("%d tries, want 5", w.destroy)
		}
		for _, failing := range []error{busy, nil} {
			waited := make(chan error)
			go func() { waited <- task.Wait(t.Context()) }()
			synctest.Wait()
			task.Stop(Exit{}) // one more try per call
			if err := <-waited; !errors.Is(err, failing) {
				t.Errorf("%v, want %v", err, failing)
			}
		}
		if s := w.last(); s.State != runtime.RunnerGone || s.Leak != "" {
			t.Errorf("it is %+v", s)
		}
		if w.logged.FilterField(zap.String("kind", string(runtime.TaskForced))).Len() == 0 {
			t.Errorf("logged %v", w.logged.All())
		}
	})
}

// A runner that ended on its own is GONE before its removal, which can fail for long. Its status says
// Removed only in the last save, which a Stop causes even if nothing else has changed.
func TestRemovedIsSavedAfterTheRemoval(t *testing.T) {
	busy := errors.New("busy")
	for name, test := range map[string]struct{ fails, stops, saves int }{
		"stopped once":               {fails: 1, stops: 1, saves: 3},               // IDLE, GONE, removed
		"stopped after the last try": {fails: removeTries, stops: 2, saves: 4},     // and the leak
		"not stopped":                {fails: 1, saves: 2},                         // nobody forgets it
		"a leak, not stopped":        {fails: removeTries - 1, saves: 2},           // none yet
		"stopped, and fails again":   {fails: removeTries + 1, stops: 4, saves: 5}, // two leaks
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{destroys: slices.Repeat([]error{busy}, test.fails)}
				task, leave := start(w, starting)
				defer leave()
				pass(time.Second)
				w.procs[0].end()
				synctest.Wait()
				for range test.stops {
					if s := w.last(); w.destroy <= test.fails && (s.State != runtime.RunnerGone || s.Removed) {
						t.Errorf("after %d tries it is %+v", w.destroy, s)
					}
					task.Stop(Exit{})
					pass(time.Hour)
				}
				pass(time.Hour)
				if s := w.last(); s.Removed != (test.stops > 0) || s.Leak != "" || len(w.states) != test.saves {
					t.Errorf("got %+v after %d saves, want %d", s, len(w.states), test.saves)
				}
			})
		})
	}
}

// A removal that fails before Stop's caller waits isn't missed.
func TestFailureBetweenStopAndWaitIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := errors.New("busy")
		w := &world{destroys: []error{busy, busy}}
		task, leave := start(w, starting)
		defer leave()
		pass(time.Second)
		wait := task.Tried()
		task.Stop(Exit{})
		synctest.Wait() // the first try has failed
		began := time.Now()
		if err := wait(t.Context()); !errors.Is(err, busy) || time.Since(began) > 0 {
			t.Errorf("got %v after %s, want %v now", err, time.Since(began), busy)
		}
	})
}

// The log has the cause of a failed start, even if what it left can't be removed.
func TestCauseOfAFailedStartIsLogged(t *testing.T) {
	for _, failures := range []int{1, 9} {
		synctest.Test(t, func(t *testing.T) {
			broken := &sandbox.Failure{Message: "broken", Unrecoverable: failures == 1, Err: errors.New("the cause")}
			w := &world{starts: []error{broken}, destroys: slices.Repeat([]error{errors.New("busy")}, failures)}
			_, leave := start(w, starting)
			pass(time.Minute)
			leave()
			logged := w.logged.FilterMessageSnippet("couldn't be started").All()
			if len(logged) != 1 {
				t.Fatalf("%d failed removals: logged %+v", failures, logged)
			}
			if said := fmt.Sprint(logged[0].ContextMap()["error"]); !strings.Contains(said, "the cause") || !strings.Contains(said, "busy") {
				t.Errorf("%d failed removals: logged %q", failures, said)
			}
		})
	}
}

func TestLeftRunningAndRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		_, leave := start(w, starting)
		pass(time.Second)
		leave()
		if w.procs[0].gone() || w.destroy != 0 {
			t.Error("shutdown ended it")
		}
		saves := len(w.states)
		again := w.runner(w.last())
		if err := again.Restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		leave = runs(ctx, cancel, again)
		synctest.Wait()
		if len(w.states) != saves {
			t.Errorf("a restore that changed nothing was saved: %+v", w.last())
		}
		again.Stop(Exit{})
		if err := again.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		want(t, "states", w.phases, runtime.RunnerIdle, runtime.RunnerStopping, runtime.RunnerGone)
		leave()

		w.procs[0].end()
		gone := w.runner(w.states[saves-1]) // its state while it ran
		if err := gone.Restore(t.Context()); err == nil {
			t.Error("an ended task is restored")
		}
		gone.Stop(Exit{runtime.GoneStoppedOutside, "restarted"})
		w.states, w.phases = nil, nil
		gone.Run(t.Context())
		want(t, "states of one that ended", w.phases, runtime.RunnerGone)
		if s := w.last(); s.Reason != runtime.GoneStoppedOutside || s.Message != "restarted" || gone.Wait(t.Context()) != nil {
			t.Errorf("it is %+v", s)
		}
	})
}

func TestEventsAreBounded(t *testing.T) {
	r := (&world{}).runner(starting)
	for i := range 25 {
		r.record(runtime.TaskPreparing, fmt.Sprint(i), nil)
	}
	if all := r.Events(); len(all) != 10 || all[0].Detail != "15" || all[9].Detail != "24" {
		t.Errorf("%+v", all)
	}
}

func TestRestartPolicy(t *testing.T) {
	began := time.Now()
	policy := restartPolicy{attempts: 2, interval: time.Minute, delay: time.Second, jitter: 0.5}
	for i, step := range []struct {
		at     time.Duration
		failed sandbox.Failure
		chance float64
		delay  time.Duration
		again  bool
	}{
		{0, sandbox.Failure{}, 0, time.Second, true},
		{time.Second, sandbox.Failure{}, 1, 1500 * time.Millisecond, true},
		{2 * time.Second, sandbox.Failure{}, 0, 0, false},
		{59 * time.Second, sandbox.Failure{}, 0, 0, false},
		{60 * time.Second, sandbox.Failure{}, 0.5, 1250 * time.Millisecond, true}, // the first no longer counts
		{60 * time.Second, sandbox.Failure{}, 0, 0, false},
		{time.Hour, sandbox.Failure{Unrecoverable: true}, 0, 0, false},
		{time.Hour, sandbox.Failure{}, 0, time.Second, true},
	} {
		delay, again := policy.next(began.Add(step.at), step.failed, step.chance)
		if delay != step.delay || again != step.again {
			t.Errorf("step %d: %s, %v", i, delay, again)
		}
	}
}

// Phases only move forward, nothing is started after it ran, and an ended task leaves nothing,
// whatever fails in whatever order.
func TestRandomFaults(t *testing.T) {
	reached := map[string]bool{}
	rapid.Check(t, func(r *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			faults := rapid.SliceOfN(rapid.SampledFrom([]error{nil, nil, errors.New("x"), &sandbox.Failure{Unrecoverable: true, Err: errors.New("y")}}), 0, 6)
			w := &world{
				starts: faults.Draw(r, "starts"), destroys: faults.Draw(r, "destroys"),
				unusable: faults.Draw(r, "unusable"), saves: faults.Draw(r, "saves"), deaf: rapid.Bool().Draw(r, "deaf"),
			}
			task, leave := start(w, starting)
			for _, step := range rapid.SliceOfN(rapid.SampledFrom([]string{"wait", "wait", "stop", "die", "leave"}), 1, 8).Draw(r, "steps") {
				pass(time.Duration(rapid.IntRange(0, 3000).Draw(r, "ms")) * time.Millisecond)
				switch step {
				case "stop":
					task.Stop(Exit{})
				case "die":
					w.mu.Lock()
					for _, p := range w.procs {
						p.end()
					}
					w.mu.Unlock()
				case "leave":
					leave()
					task = w.runner(w.last())
					ctx, cancel := context.WithCancel(context.Background())
					if task.Restore(ctx) != nil {
						task.Stop(Exit{})
					}
					leave = runs(ctx, cancel, task)
				}
				synctest.Wait()
			}
			pass(time.Hour)
			task.Stop(Exit{})
			synctest.Wait()
			pass(10 * time.Minute)
			for range 7 {
				task.Stop(Exit{})
				pass(3 * time.Minute)
			}
			leave()
			for i := 1; i < len(w.phases); i++ {
				if w.phases[i].Before(w.phases[i-1]) {
					r.Fatalf("phases %v", w.phases)
				}
			}
			if w.again {
				r.Fatalf("it was started after it ran: %v", w.phases)
			}
			for _, p := range w.procs {
				if !p.gone() {
					r.Fatalf("a process is left; %v, %v", w.phases, w.logged.All())
				}
			}
			for _, p := range w.phases {
				reached[string(p)] = true
			}
		})
	})
	if len(reached) != 4 {
		t.Errorf("only %v were reached", reached)
	}
}
