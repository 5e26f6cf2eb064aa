package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// The bounds of a lease.
const (
	minLease = 10 * time.Second
	maxLease = runtime.MaxTimeLimit
)

// leaseSteps is the number of equal steps of a lease. Time in which this server was stopped, so that no
// client could renew, costs at most one step.
const leaseSteps = 4

// leases ends the executions and batches whose clients stop renewing them. Only this process's
// monotonic time counts: after a restart, each lease begins again.
type leases struct {
	mu   sync.Mutex // guards byID and the leases in it
	byID map[string]*lease
}

// A lease is one that hasn't ended.
type lease struct {
	left  int // steps
	step  time.Duration
	timer *time.Timer
}

// grant calls lapse, in a goroutine of its own, once the lease of id hasn't been renewed for length;
// 0: no lease.
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

// leaseExecution cancels an execution when its lease ends.
func (e *Engine) leaseExecution(x runtime.Execution) {
	e.leases.grant(string(x.ID), x.Lease, func() {
		// A server that stops leaves the execution to the next one.
		_ = e.jobs.add(func(ctx context.Context) {
			if s := e.sessions.get(x.ID); s != nil {
				s.Lapse(ctx)
			}
		})
	})
}

// leaseBatch cancels a batch when its lease ends.
func (e *Engine) leaseBatch(b runtime.Batch) {
	e.leases.grant(string(b.ID), b.Lease, func() {
		_ = e.jobs.add(func(ctx context.Context) {
			if _, err := e.cancelBatch(ctx, b.ID, fmt.Sprintf("it was cancelled: the client that started it is gone; it didn't renew its lease of %d s", b.Lease/time.Second)); err != nil && ctx.Err() == nil {
				e.leaseBatch(b) // the database may be unavailable: try again later
			}
		})
	})
}

// RenewLease restarts the lease of an execution or batch. It reports false if that has ended or has no
// lease.
func (e *Engine) RenewLease(id string) bool { return e.leases.renew(id) }
