package serve

import (
	"sync"
	"time"

	"github.com/rockpool/rockpool/agent"
)

// watchTick is the interval in which an execution with limits is measured. One that uses two cores
// is killed at most 100 ms of processor time late. Other executions are measured every idleTick.
const (
	watchTick = 50 * time.Millisecond
	idleTick  = 100 * time.Millisecond
)

// checkLast checks, after a command has failed, whether it was at its limit of processes in its
// last moment. A shell that can't fork exits immediately, between two ticks of the watch.
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

// watch ends the execution when it exceeds its limit of processor time or processes, or when the
// kernel refused it more than [agent.MostRefused] forks. Limits are summed over the whole execution,
// whereas the kernel's own limits are for each process or user. The function stop ends the watch
// and waits for its goroutine.
func (x *execution) watch() (stop func()) {
	every := idleTick
	if limits := x.start.Limits; limits != nil && (limits.CPU > 0 || limits.Processes > 0) {
		every = watchTick
	}
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
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
	})
	return func() {
		close(over)
		watching.Wait()
	}
}

func (x *execution) check() {
	if x.process.Refused() > agent.MostRefused {
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
