package nomad

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/nomad/listing"
	"github.com/rockpool/rockpool/runtime"
)

// Nomad's client can believe permanently that a task hasn't begun, until another event of the task.
func TestWedgedTaskIsHealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.locked(func() { w.stuck = true })
		w.idle()
		w.locked(func() {
			if w.stuck {
				t.Error("the task was never stuck")
			}
		})
	})
}

// If that can't be corrected, the runner is given up, and a pool starts another one.
func TestWedgedTaskIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.locked(func() { w.stuck, w.unhealed = true, true })
		id := runtime.NewRunnerID()
		began := time.Now()
		hinted := make(chan time.Duration, 100)
		go func() {
			_ = w.cluster.Watch(t.Context(), func(runtime.EnvironmentID) { hinted <- time.Since(began) })
		}()
		if err := w.cluster.Start(t.Context(), id, w.env, runtime.PriorityRefill); err != nil {
			t.Fatal(err)
		}
		time.Sleep(stuckAfter - 100*time.Millisecond)
		if r := w.state(id); r.State != runtime.RunnerStarting {
			t.Errorf("too soon it is %s: %s", r.State, r.Message)
		}
		for len(hinted) > 0 {
			<-hinted
		}
		time.Sleep(2 * time.Second)
		if r := w.state(id); r.State != runtime.RunnerGone || r.GoneReason != runtime.GoneStartFailed || r.Message == "" {
			t.Errorf("got %s (%s): %s, want GONE (START_FAILED) with a reason", r.State, r.GoneReason, r.Message)
		}
		if len(hinted) == 0 {
			t.Error("no hint was sent")
		}
		events, err := w.cluster.TaskEvents(t.Context(), id)
		if err != nil || len(events) == 0 || events[len(events)-1].Kind != runtime.TaskGone || events[len(events)-1].At.Before(began) {
			t.Errorf("its last event isn't its end: %+v, %v", events, err)
		}
		w.locked(func() { w.stuck, w.unhealed = false, false })
		w.idle()
	})
}

// An allocation runs as soon as one of its tasks does. While the runner's image is pulled, its task
// really hasn't begun, however long that takes.
func TestSlowImagePullsAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.locked(func() { w.pulling = true })
		id := runtime.NewRunnerID()
		if err := w.cluster.Start(t.Context(), id, w.env, runtime.PriorityRefill); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if r := w.state(id); r.State != runtime.RunnerStarting {
			t.Errorf("it is %s (%s): %s", r.State, r.GoneReason, r.Message)
		}
		w.locked(func() {
			if w.calls["PUT /v1/client/allocation/{id}/signal"] > 0 {
				t.Error("a task that hasn't begun was signalled")
			}
			w.pulling = false
			w.change(w.live(id), func(a *api.AllocationListStub) { a.TaskStates[job.TaskName].State = listing.TaskRuns })
		})
		time.Sleep(time.Second)
		if r := w.state(id); r.State != runtime.RunnerIdle {
			t.Errorf("it is %s (%s): %s", r.State, r.GoneReason, r.Message)
		}
	})
}

func TestPace(t *testing.T) {
	var p pace
	if first := p.first(); first != firstTry {
		t.Errorf("the very first runner is tried after %v, want %v", first, firstTry)
	}
	for _, test := range []struct{ took, first time.Duration }{
		{time.Minute, lastFirstTry}, // the image was pulled
		{time.Second, 500 * time.Millisecond},
		{2 * time.Second, 500 * time.Millisecond},
		{2 * time.Second, 500 * time.Millisecond},
		{2 * time.Second, 500 * time.Millisecond},
		{2 * time.Second, time.Second}, // the quickest is forgotten
	} {
		if p.took(test.took); p.first() != test.first {
			t.Errorf("after one of %v: %v, want %v", test.took, p.first(), test.first)
		}
	}
	for since, want := range map[time.Duration]time.Duration{0: leastPause, 300 * time.Millisecond: 50 * time.Millisecond, time.Hour: mostPause} {
		for range 100 {
			if pause := p.next(since); pause < want*3/4 || pause > want*5/4 {
				t.Errorf("after %v: %v, want about %v", since, pause, want)
			}
		}
	}
}
