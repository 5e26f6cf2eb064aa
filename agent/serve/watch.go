package serve

import (
	"time"

	"github.com/rockpool/rockpool/agent"
)

// watchTick is how often an execution with limits of its own is measured. One
// on all of two cores ends at most 100 ms of processor time late. Others are
// measured every idleTick.
const (
	watchTick = 50 * time.Millisecond
	idleTick  = 100 * time.Millisecond
)

// checkLast finds, when a command has failed, whether it had more processes than
// it may in its last moment, itself included: a shell that can't fork ends at
// once, between two ticks of the watch.
func (x *execution) checkLast(status Status) {
	limits := x.start.Limits
	if limits == nil || limits.Processes == 0 || status == (Status{}) || x.process.Measure().Processes < limits.Processes {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.cause == agent.CauseSelf {
		x.cause = agent.CauseProcessLimit
	}
}

// watch ends the execution when it has used its processor time, or has more
// processes than it may, summed over all that it started (the kernel's own limits
// of these are each process's, or its user's), or was refused one because the
// runner is full. stop ends the watch, and waits for its end.
func (x *execution) watch() (stop func()) {
	every := idleTick
	if limits := x.start.Limits; limits != nil && (limits.CPU > 0 || limits.Processes > 0) {
		every = watchTick
	}
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				x.check()
			}
		}
	}()
	return func() {
		close(over)
		<-done
	}
}

func (x *execution) check() {
	if x.process.Refused() > 0 {
		x.kill(agent.CauseProcessLimit, 0)
	}
	if x.process.Excessive() {
		x.kill(agent.CauseMemoryLimit, 0)
	}
	limits := x.start.Limits
	if limits == nil || limits.CPU == 0 && limits.Processes == 0 {
		return
	}
	switch now := x.process.Measure(); {
	case limits.CPU > 0 && now.CPU >= limits.CPU:
		x.kill(agent.CauseCPULimit, 0)
	case limits.Processes > 0 && now.Processes > limits.Processes:
		x.kill(agent.CauseProcessLimit, 0)
	}
}
