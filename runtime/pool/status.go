package pool

import "github.com/rockpool/rockpool/runtime"

// published is a status and what is closed when there is a newer one.
type published struct {
	status  runtime.PoolStatus
	changed chan struct{}
}

// Status returns the newest snapshot. It never waits for the owner.
func (p *Pool) Status() runtime.PoolStatus { return p.status.Load().status }

// Watch returns the newest snapshot, and a channel that is closed once there
// is a newer one.
func (p *Pool) Watch() (runtime.PoolStatus, <-chan struct{}) {
	s := p.status.Load()
	return s.status, s.changed
}

// publish makes the owner's state visible; ended marks the last one.
func (o *owner) publish(ended bool) {
	status := runtime.PoolStatus{
		EnvironmentID: o.env.ID,
		Revision:      o.env.Revision,
		Size:          o.env.PoolSize,
		Waiting:       len(o.waiters),
		Deleted:       ended && o.deleted,
	}
	var blocked string
	for _, e := range o.runners {
		switch e.State {
		case runtime.RunnerStarting:
			status.Starting++
			blocked = e.Message
		case runtime.RunnerIdle:
			status.Idle++
		case runtime.RunnerClaiming, runtime.RunnerClaimed:
			status.Claimed++
		case runtime.RunnerStopping, runtime.RunnerGone:
			status.Stopping++
		}
	}
	switch {
	case o.listError != "":
		status.Reason = o.listError
	case o.failures.Count > 0:
		status.Reason = o.lastFailure
	case status.Idle == 0:
		status.Reason = blocked
	}
	old := o.pool.status.Load()
	if old.status == status {
		return
	}
	o.pool.status.Store(&published{status: status, changed: make(chan struct{})})
	close(old.changed)
}
