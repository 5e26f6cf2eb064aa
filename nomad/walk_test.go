package nomad

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/nomad/api"
	"pgregory.net/rapid"

	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/nomad/listing"
	"github.com/rockpool/rockpool/runtime"
)

// A world is a cluster on a simulated Nomad, and its history.
type world struct {
	*sim
	t       *testing.T
	config  Config
	cluster *Cluster
	stop    func()
	ended   error // of the last stop
	env     runtime.Environment
	started []runtime.RunnerID
	removed map[runtime.RunnerID]bool          // false means it was tried
	claims  map[runtime.RunnerID]runtime.Claim // that were stored, the last of each
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s := newSim()
	s.serve(t)
	w := &world{sim: s, t: t, removed: map[runtime.RunnerID]bool{}, claims: map[runtime.RunnerID]runtime.Claim{}, env: rawEnvironment()}
	w.config = defaults(Config{
		Connection: connection.Config{Address: "http://127.0.0.1:4646", Dial: s.dial}, Jobs: job.Config{Driver: job.RawExec, Agent: job.Agent{Path: "/agent"}}, openBridge: s.openBridge, LockTTL: 5 * time.Minute,
	})
	w.env.ID, w.env.Revision, w.env.RunnerRevision = "a", 1, 1
	w.run()
	t.Cleanup(func() { w.stop() })
	if err := w.cluster.PutEnvironment(t.Context(), w.env); err != nil {
		t.Fatal(err)
	}
	return w
}

// run runs a server until stop is called.
func (w *world) run() {
	c, err := New(context.Background(), w.config)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	w.cluster, w.stop = c, sync.OnceFunc(func() {
		cancel()
		w.ended = <-ended
	})
}

// idle starts a runner and waits until it is idle.
func (w *world) idle() runtime.RunnerID {
	w.t.Helper()
	id := runtime.NewRunnerID()
	if err := w.cluster.Start(w.t.Context(), id, w.env, runtime.PriorityRefill); err != nil {
		w.t.Fatal(err)
	}
	time.Sleep(5 * time.Second)
	if r := w.state(id); r.State != runtime.RunnerIdle {
		w.t.Fatalf("runner %s is %s: %s", id, r.State, r.Message)
	}
	return id
}

func (w *world) state(id runtime.RunnerID) runtime.Runner {
	w.t.Helper()
	all, err := w.cluster.Runners(w.t.Context(), "")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range all {
		if r.ID == id {
			return r
		}
	}
	return runtime.Runner{}
}

// live returns a running allocation of a runner, or nil.
func (w *world) live(id runtime.RunnerID) *api.AllocationListStub {
	for _, a := range w.allocs {
		if a.JobID == w.cluster.names().Runner(id) && !listing.Ended(a) {
			return a
		}
	}
	return nil
}

func fails(a *api.AllocationListStub) { a.ClientStatus = api.AllocClientStatusFailed }

func (w *world) locked(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
}

// Nomad has no leader for a minute, and events are lost meanwhile. Calls fail with errors that
// allow a retry. Afterwards every runner is in the state that its history requires.
func TestMinuteWithoutALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		kept, lost := w.idle(), w.idle()
		w.locked(func() {
			w.leaderless = true
			w.breakStreams()
			w.change(w.live(lost), fails)
		})
		time.Sleep(2 * listing.MostGap) // until then Runners says what it knows
		began := time.Now()
		_, err := w.cluster.Runners(t.Context(), "")
		if runtime.CodeOf(err) != runtime.CodeClusterUnavailable || !runtime.CodeOf(err).Retryable() {
			t.Errorf("without a leader: %v", err)
		}
		if took := time.Since(began); took < w.cluster.config.Connection.Patience || took > time.Minute {
			t.Errorf("it was tried for %v", took)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if _, err := w.cluster.Runners(short, ""); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("its context ended: %v after %v", err, time.Since(began))
		}
		time.Sleep(time.Minute)
		w.locked(func() {
			calls := 0
			for _, n := range w.calls {
				calls += n
			}
			if calls > 500 {
				t.Errorf("%d calls in a minute without a leader", calls)
			}
			w.leaderless = false
		})
		time.Sleep(5 * time.Second)
		if r := w.state(kept); r.State != runtime.RunnerIdle {
			t.Errorf("the one that lives is %s: %s", r.State, r.Message)
		}
		if r := w.state(lost); r.State != runtime.RunnerGone || r.GoneReason != runtime.GoneAgentDied {
			t.Errorf("the one that failed is %s, %s", r.State, r.GoneReason)
		}
	})
}

// A watcher gets its hint although every event is lost: at the interval, and when a silent stream
// is given up.
func TestLostEventsDelayHintsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		id := w.idle()
		w.locked(func() { w.disturb = func(string) []string { return nil } })
		hints := make(chan runtime.EnvironmentID, 100)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = w.cluster.Watch(ctx, func(id runtime.EnvironmentID) { hints <- id }) }()
		<-hints
		w.locked(func() { w.change(w.live(id), fails) })
		began := time.Now()
		if env := <-hints; env != "a" || time.Since(began) > 31*time.Second {
			t.Errorf("hint for %q after %v", env, time.Since(began))
		}
	})
}

// A refresh takes a handful of calls, whatever the number of pools and runners.
func TestRecoveryTakesFewCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for range 200 {
			if err := w.cluster.Start(t.Context(), runtime.NewRunnerID(), w.env, runtime.PriorityRefill); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		w.stop()
		w.locked(func() { clear(w.calls) })
		w.run()
		all, err := w.cluster.Runners(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			if r.State != runtime.RunnerIdle {
				t.Fatalf("%s is %s: %s", r.ID, r.State, r.Message)
			}
		}
		w.locked(func() {
			calls := 0
			for _, n := range w.calls {
				calls += n
			}
			if len(all) != 200 || calls > 12 {
				t.Errorf("%d runners by %d calls: %v", len(all), calls, w.calls)
			}
			clear(w.calls)
		})
		for range 30 {
			go func() { _, _ = w.cluster.Runners(t.Context(), "a") }()
		}
		time.Sleep(10 * time.Second)
		w.locked(func() {
			if n := w.calls["GET /v1/jobs"]; n > 3 {
				t.Errorf("thirty pools that ask at once make %d lists", n)
			}
		})
	})
}

// A step of a walk: an action and a runner.
type step struct{ what, who, how int }

// The steps are random, and events are lost, duplicated and reordered. When the system is at rest,
// the cluster reports the true state. No claim is lost or given twice, and removed runners leave
// nothing.
func TestWalk(t *testing.T) {
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{rapid.IntRange(0, 13).Draw(t, "what"), rapid.IntRange(0, 20).Draw(t, "who"), rapid.IntRange(0, 9).Draw(t, "how")}
	}), 1, 40)
	rapid.Check(t, func(rt *rapid.T) {
		walk := steps.Draw(rt, "steps")
		var problem error
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			for _, s := range walk {
				if problem = w.take(s); problem != nil {
					return
				}
			}
			problem = w.rest()
		})
		if problem != nil {
			rt.Fatal(problem)
		}
	})
}

// take does one step.
func (w *world) take(s step) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	id := runtime.RunnerID("none")
	if len(w.started) > 0 {
		id = w.started[s.who%len(w.started)]
	}
	switch s.what {
	case 0, 1:
		id := runtime.NewRunnerID()
		if w.cluster.Start(ctx, id, w.env, runtime.PriorityRefill) == nil {
			w.started = append(w.started, id)
		}
	case 2, 3:
		return w.mark(ctx, id)
	case 4:
		w.removed[id] = w.cluster.Remove(ctx, id) == nil
	case 13:
		w.stop()
		w.locked(func() { w.leaderless, w.deaf = false, false })
		w.run()
	default:
		w.locked(func() { w.happen(s, id) })
	}
	time.Sleep(time.Duration(s.how*s.how*s.how) * 10 * time.Millisecond)
	return nil
}

// happen does what Nomad, or another program, could do.
func (w *world) happen(s step, id runtime.RunnerID) {
	a := w.live(id)
	switch {
	case s.what == 5:
		w.breakStreams()
	case s.what == 6:
		w.leaderless, w.deaf = s.how < 3, s.how > 6
	case s.what == 7:
		held := ""
		w.disturb = []func(string) []string{
			func(e string) []string { return []string{e} },
			func(string) []string { return nil },
			func(e string) []string { return []string{e, e} },
			func(e string) []string { // each comes after the next
				before := held
				held = e
				return slices.DeleteFunc([]string{e, before}, func(e string) bool { return e == "" || e == held })
			},
		}[s.how%4]
	case s.what == 8:
		w.purge(w.cluster.names().Runner(id), s.how%2 == 0)
	case a == nil:
	case s.what == 9: // and Nomad places it again
		w.change(a, fails)
		w.place(a.JobID)
	case s.what == 10:
		w.change(a, func(a *api.AllocationListStub) {
			a.ClientStatus = []string{api.AllocClientStatusFailed, api.AllocClientStatusLost, api.AllocClientStatusComplete}[s.how%3]
		})
	case s.what == 11:
		w.change(a, func(a *api.AllocationListStub) {
			a.TaskStates = map[string]*api.TaskState{job.TaskName: {State: "running", Restarts: a.TaskStates[job.TaskName].Restarts + 1, LastRestart: time.Now()}}
		})
		w.cut(a.ID)
	case s.what == 12:
		w.cut(a.ID)
	}
}

// mark claims a runner twice concurrently, or renews its claim: one of two succeeds.
func (w *world) mark(ctx context.Context, id runtime.RunnerID) error {
	stored := w.claims[id]
	next := func(key string) runtime.Claim {
		return runtime.Claim{Epoch: stored.Epoch + 1, Key: key, ClaimedAt: time.Unix(1, 0), InactivityTimeout: time.Minute}
	}
	claims := []runtime.Claim{next("x"), next("y")}
	won := make(chan runtime.Claim, len(claims))
	done := make(chan error, len(claims))
	for _, claim := range claims {
		go func() {
			err := w.cluster.Mark(ctx, id, claim)
			if err == nil {
				won <- claim
			}
			done <- err
		}()
	}
	for range claims {
		if err := <-done; err != nil && runtime.CodeOf(err) != runtime.CodeConflict && runtime.CodeOf(err) != runtime.CodeRunnerGone {
			w.removed[id] = false // nobody knows what is stored: the runner is to go
		}
	}
	if len(won) > 1 {
		return fmt.Errorf("both of two claims of runner %s were stored", id)
	}
	if len(won) == 1 {
		w.claims[id] = <-won
	}
	return nil
}

// rest waits until nothing changes, and compares.
func (w *world) rest() error {
	w.locked(func() { w.leaderless, w.deaf, w.disturb = false, false, func(e string) []string { return []string{e} } })
	for id, done := range w.removed { // as its pool does, again and again
		if err := w.cluster.Remove(context.Background(), id); !done && err != nil {
			return err
		}
		w.removed[id] = true
	}
	time.Sleep(2 * time.Minute)
	all, err := w.cluster.Runners(context.Background(), "")
	if err != nil {
		return fmt.Errorf("at rest: %w", err)
	}
	listed := map[runtime.RunnerID]runtime.Runner{}
	for _, r := range all {
		listed[r.ID] = r
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range w.started {
		r, there := listed[id]
		want := w.truth(id)
		switch {
		case w.removed[id] && there:
			return fmt.Errorf("runner %s was removed, and is %s", id, r.State)
		case w.removed[id]:
		case !there && want != "GONE or not there":
			return fmt.Errorf("runner %s isn't listed, want it %s", id, want)
		case there && want != string(r.State) && (want != "GONE or not there" || r.State != runtime.RunnerGone):
			return fmt.Errorf("runner %s is %s (%s, %s), want it %s", id, r.State, r.GoneReason, r.Message, want)
		case r.State == runtime.RunnerClaimed && !r.Claim.Equal(w.claims[id]):
			return fmt.Errorf("runner %s has the claim %+v, want %+v", id, r.Claim, w.claims[id])
		}
		delete(listed, id)
	}
	w.mu.Unlock()
	for _, r := range all {
		if err := w.cluster.Remove(context.Background(), r.ID); err != nil {
			w.mu.Lock()
			return err
		}
	}
	w.mu.Lock()
	for id := range w.jobs {
		if strings.HasPrefix(id, w.cluster.names().Runners()) {
			return fmt.Errorf("job %s is left", id)
		}
	}
	if len(w.vars) > 0 {
		return fmt.Errorf("left: %v", slices.Collect(maps.Keys(w.vars)))
	}
	return nil
}

// truth returns the state that a runner must have, according to Nomad. The caller holds mu.
func (w *world) truth(id runtime.RunnerID) string {
	v := w.vars[w.cluster.names().Claim(id)]
	stored := w.jobs[w.cluster.names().Runner(id)]
	switch {
	case stored == nil && v == nil:
		return "GONE or not there" // a server that didn't see it ready can't know of it
	case stored == nil, *stored.Stop, w.live(id) == nil:
		return "GONE"
	case v == nil:
		return "IDLE, with a variable"
	}
	a := w.live(id)
	restarts := strconv.FormatUint(a.TaskStates[job.TaskName].Restarts, 10)
	if v.Items["allocation"] != a.ID || v.Items["restarts"] != restarts {
		return "GONE"
	}
	if v.Items["claim"] != "" {
		return "CLAIMED"
	}
	return "IDLE"
}
