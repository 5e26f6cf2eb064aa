package engine

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/request"
)

func TestALeaseEndsWhenNobodyRenewsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newLeases()
		began := time.Now()
		var mu sync.Mutex // guards lapsed
		lapsed := map[string]time.Duration{}
		for _, id := range []string{"renewed", "forgotten", "ended"} {
			all.grant(id, time.Minute, func() {
				mu.Lock()
				defer mu.Unlock()
				lapsed[id] = time.Since(began)
			})
		}
		all.grant("none", 0, func() { t.Error("no lease ended") })
		for range 10 {
			time.Sleep(50 * time.Second)
			if !all.renew("renewed") {
				t.Error("a lease can't be renewed")
			}
			all.end("ended")
		}
		for _, id := range []string{"forgotten", "ended", "none", "unknown"} {
			if all.renew(id) {
				t.Errorf("%s is renewed", id)
			}
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(lapsed) != 2 || lapsed["forgotten"] != time.Minute || lapsed["renewed"] != 560*time.Second || len(all.byID) != 0 {
			t.Error(lapsed, all.byID)
		}
	})
}

// lapse makes the lease of an execution or batch end now.
func (b *bed) lapse(t *testing.T, id string) {
	t.Helper()
	b.leases.mu.Lock()
	defer b.leases.mu.Unlock()
	l := b.leases.byID[id]
	if l == nil {
		t.Fatalf("%s has no lease", id)
	}
	l.left = 1
	l.timer.Reset(0)
}

// TestLeasesBeginAgainAfterARestart restarts the server of an execution and of a batch with leases.
func TestLeasesBeginAgainAfterARestart(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	in := request.Start{RunnerID: r.ID, Command: []string{"sleep", "3600"}, Lease: ptr(3600)}
	x := b.startCommand(t, in)
	l, _, err := b.Batches.Start(asServer(t), in, request.Batch{Cases: make([]request.Case, 2)})
	if err != nil {
		t.Fatal(err)
	}
	b.stop()
	b.start(t)
	for _, id := range []string{string(x.ID), string(l.ID)} {
		if !b.leases.renew(id) {
			t.Errorf("the lease of %s can't be renewed", id)
		}
		b.lapse(t, id)
	}
	if end := b.await(t, x.ID).End; end.Outcome != runtime.OutcomeCancelled || !strings.Contains(end.Message, "3600") {
		t.Errorf("the execution ended with %+v, want CANCELLED because of the lease of 3600 s", end)
	}
	if end := b.awaitBatch(t, l.ID); end.Outcome != runtime.BatchCancelled || !strings.Contains(end.Message, "3600") {
		t.Errorf("the batch ended as %s: %s, want CANCELLED because of the lease of 3600 s", end.Outcome, end.Message)
	}
	if b.leases.renew(string(x.ID)) || b.leases.renew(string(l.ID)) {
		t.Error("a lease that has ended is renewed")
	}
}
