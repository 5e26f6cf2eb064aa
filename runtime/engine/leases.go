package engine

import (
	"sync"
	"time"
)

// leaseSteps is the number of equal steps of a lease. Time in which this server was stopped, so that no
// client could renew, costs at most one step.
const leaseSteps = 4

// leases end the executions and batches whose clients stop renewing them. Only this process's
// monotonic time counts: after a restart, each lease begins again. Methods are safe for concurrent use.
type leases struct {
	mu   sync.Mutex // guards byID and the leases in it
	byID map[string]*lease
}

func newLeases() *leases { return &leases{byID: map[string]*lease{}} }

// A lease is the time until an execution or batch ends, unless its client renews it.
type lease struct {
	left  int // steps
	step  time.Duration
	timer *time.Timer
}

// grant calls lapse, in a goroutine of its own, once the lease of id hasn't been renewed for length;
// 0 means no lease.
func (all *leases) grant(id string, length time.Duration, lapse func()) {
	if length == 0 {
		return
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	l := &lease{left: leaseSteps, step: length / leaseSteps}
	l.timer = time.AfterFunc(l.step, func() {
		if all.lapsed(id, l) {
			lapse()
		}
	})
	all.byID[id] = l
}

// lapsed counts a step of a lease, and reports whether it was the last one.
func (all *leases) lapsed(id string, l *lease) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.byID[id] != l {
		return false
	}
	if l.left--; l.left > 0 {
		l.timer.Reset(l.step)
		return false
	}
	delete(all.byID, id)
	return true
}

// renew restarts the lease of an execution or batch, and reports whether it has one.
func (all *leases) renew(id string) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	l := all.byID[id]
	if l != nil {
		l.left = leaseSteps
		l.timer.Reset(l.step)
	}
	return l != nil
}

// end ends the lease of an execution or batch that has ended, if it has one.
func (all *leases) end(id string) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if l := all.byID[id]; l != nil {
		l.timer.Stop()
		delete(all.byID, id)
	}
}
