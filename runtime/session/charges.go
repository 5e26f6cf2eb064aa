package session

import (
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// charges ensures that no CPU time of a runner is charged to two of its executions, since the host only
// counts all of them together. Its methods are safe for concurrent use.
type charges struct {
	mu      sync.Mutex // guards runners
	runners map[runtime.RunnerID]*charge
}

type charge struct {
	executions int
	until      time.Duration // host's count up to which CPU time has been charged
}

// enter records an execution that began when the host's count was before.
func (c *charges) enter(id runtime.RunnerID, before time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runners == nil {
		c.runners = map[runtime.RunnerID]*charge{}
	}
	of := c.runners[id]
	if of == nil {
		of = &charge{until: before}
		c.runners[id] = of
	}
	of.executions++
}

// leave records the end of an execution and returns the CPU time to charge. That is what its agent
// reported or, without a report, what the host counted since its start minus what was charged to others
// meanwhile. A before of 0 means that the host didn't count, so the result is 0.
func (c *charges) leave(id runtime.RunnerID, reported *time.Duration, before, counted time.Duration) (cpu time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.runners[id]
	switch {
	case reported != nil:
		cpu = *reported
		of.until += cpu
	case before > 0:
		cpu = max(0, counted-max(before, of.until))
		of.until = max(of.until, counted)
	}
	if of.executions--; of.executions == 0 {
		delete(c.runners, id)
	}
	return cpu
}
