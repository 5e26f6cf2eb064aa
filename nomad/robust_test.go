package nomad

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

// again restarts the world's server with another configuration.
func (w *world) again(change func(*Config)) {
	w.stop()
	change(&w.config)
	w.run()
}

// problem returns the problem of a subject in Status; "" if there is none.
func problem(t *testing.T, c *Cluster, subject string) string {
	t.Helper()
	status, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range status.Problems {
		if p.Subject == subject {
			return p.Message
		}
	}
	return ""
}

// When runners in use have every connection, a starting runner reports what it waits for.
func TestRunnersReportMissingConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.again(func(c *Config) { c.Bridges = 1 })
		used := w.idle()
		if err := w.cluster.Mark(t.Context(), used, runtime.Claim{Epoch: 1, ClaimedAt: time.Now()}); err != nil {
			t.Fatal(err)
		}
		id := runtime.NewRunnerID()
		if err := w.cluster.Start(t.Context(), id, w.env, runtime.PriorityRefill); err != nil {
			t.Fatal(err)
		}
		time.Sleep(w.cluster.config.Relist)
		if r := w.state(id); r.State != runtime.RunnerStarting || !strings.Contains(r.Message, "--nomad-bridges") {
			t.Errorf("got %s: %q, want STARTING that names --nomad-bridges", r.State, r.Message)
		}
		if err := w.cluster.Remove(t.Context(), used); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if r := w.state(id); r.State != runtime.RunnerIdle || r.Message != "" {
			t.Errorf("it is %s: %q", r.State, r.Message)
		}
	})
}

// A Nomad that accepts the write of the lock but returns no lock gives no ownership.
func TestAnswerWithoutALockIsNoOwnership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.locked(func() { w.lockless = true })
		w.again(func(*Config) {})
		time.Sleep(5 * time.Second)
		if told := problem(t, w.cluster, "lock"); !strings.Contains(told, "own rockpool") {
			t.Errorf("it tells %q", told)
		}
		if w.cluster.serves() {
			t.Error("the cluster works without a lock")
		}
		w.locked(func() { w.lockless = false })
		w.idle()
	})
}

// A lock that Nomad gives to a server that is shutting down would block the next one.
func TestLateLockIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.stop()
		w.slowLock = time.Second
		w.run()
		time.Sleep(500 * time.Millisecond)
		w.stop()
		w.locked(func() {
			if w.sim.locked {
				t.Error("Nomad has a lock that no server holds")
			}
		})
		w.slowLock = time.Minute // nobody waits for so long
		w.run()
		time.Sleep(500 * time.Millisecond)
		began := time.Now()
		w.stop()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it ended after %s", took)
		}
	})
}

// Before Nomad has answered, Status must not report that all is well.
func TestStatusBeforeNomadAnsweredIsAProblem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.stop()
		c, err := New(t.Context(), w.config)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if told := problem(t, c, nomadSubject); !strings.Contains(told, "starting") {
			t.Errorf("it tells %q", told)
		}
		w.run()
		w.idle()
		if told := problem(t, w.cluster, nomadSubject); told != "" {
			t.Errorf("and then %q, want \"\"", told)
		}
	})
}

// However many hints there are, lists are read with pauses.
func TestListsAreReadWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.idle()
		w.locked(func() { clear(w.calls) })
		for range 1000 {
			w.cluster.refresher.soon()
			time.Sleep(time.Millisecond)
		}
		w.locked(func() {
			if n := w.calls["GET /v1/jobs"]; n < 10 || n > 1000/50+1 {
				t.Errorf("%d lists in a second", n)
			}
		})
	})
}

// A list that began before a runner was removed may still contain it. A later list contains it only
// if it exists again.
func TestOldListDoesNotRestoreARunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		id := w.idle()
		old, err := w.cluster.list(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := w.cluster.Remove(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		known := func() bool {
			w.cluster.runners.mu.Lock()
			defer w.cluster.runners.mu.Unlock()
			return w.cluster.runners.entries[id] != nil
		}
		if w.cluster.apply(old); known() {
			t.Error("a list from before its removal restores a removed runner")
		}
		w.cluster.runners.mu.Lock()
		old.begun = w.cluster.runners.change
		w.cluster.runners.mu.Unlock()
		w.cluster.apply(old) // afterwards the removal needn't be remembered
		if w.cluster.apply(old); !known() {
			t.Error("a list from after its removal doesn't restore a runner whose job exists")
		}
	})
}

// A server that must remove its runners at its end removes all, including those in use. One that
// never owned the prefix removes none.
func TestRunnersAreRemovedAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.idle()
		if err := w.cluster.Mark(t.Context(), w.idle(), runtime.Claim{Epoch: 1, ClaimedAt: time.Now()}); err != nil {
			t.Fatal(err)
		}
		count := func() (n int) {
			w.locked(func() {
				for id := range w.jobs {
					if strings.HasPrefix(id, w.cluster.names().Runners()) {
						n++
					}
				}
				n += len(w.vars)
			})
			return n
		}
		w.stop()
		w.locked(func() { w.lockless = true })
		w.config.Remove = true
		w.run()
		time.Sleep(time.Second)
		if w.stop(); count() != 4 {
			t.Errorf("%d jobs and variables are there after the end of one that didn't own them, want 4", count())
		}
		w.locked(func() { w.lockless = false })
		w.run()
		time.Sleep(time.Second)
		late := *w.jobs[w.cluster.names().Runner(first)]
		late.ID = new(w.cluster.names().Runner("late"))
		go func() { // one that is on its way is none that stays
			time.Sleep(inTransit - 20*time.Millisecond)
			w.locked(func() { w.jobs[*late.ID] = &late })
		}()
		if w.stop(); count() != 0 || !errors.Is(w.ended, context.Canceled) {
			t.Errorf("%d jobs and variables are left: %v", count(), w.ended)
		}
		w.run()
		w.idle()
		w.locked(func() { w.leaderless = true })
		began := time.Now()
		w.stop()
		if took := time.Since(began); took > 5*time.Second || w.ended == nil || !strings.Contains(w.ended.Error(), "left") {
			t.Errorf("without Nomad it ended after %s: got %v, want an error about what is left", took, w.ended)
		}
	})
}

// A password in Nomad's address is used, also for bridges, and shown nowhere.
func TestPasswordOfAnAddressIsNotShown(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		mu.Lock()
		defer mu.Unlock()
		asked[r.URL.Path] = user == "pool" && password == "s3cret"
		http.Error(w, "no: s3cret", http.StatusForbidden)
	}))
	defer server.Close()
	for _, at := range []string{server.Listener.Addr().String(), "127.0.0.1:1"} {
		address := "http://pool:s3cret@" + at
		t.Setenv("NOMAD_ADDR", address)
		c := defaults(Config{
			Connection: connection.Config{Patience: 100 * time.Millisecond},
			Jobs:       job.Config{Driver: job.RawExec, Agent: job.Agent{Path: "/agent"}},
		})
		found, err := Examine(t.Context(), c)
		if err != nil || len(found) == 0 {
			t.Fatal(found, err)
		}
		cluster, err := New(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		defer cluster.Close()
		_, execErr := cluster.nomad.Exec(t.Context(), "", "a", "t", []string{"true"})
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- cluster.Run(ctx) }()
		wait.For(t, "it says that it can't have its lock", func() bool { return problem(t, cluster, "lock") != "" })
		stop()
		<-ran
		text := fmt.Sprintln(found, cluster.Check(t.Context()), cluster.nomad.Redact(execErr), problem(t, cluster, "lock"), connection.Config{Address: address}, fmt.Sprintf("%+v", cluster.config))
		if strings.Contains(text, "s3cret") || !strings.Contains(text, at) {
			t.Errorf("%s", text)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if !asked["/v1/status/leader"] || !asked["/v1/client/allocation/a/exec"] {
		t.Errorf("asked with the password: %v", asked)
	}
}
