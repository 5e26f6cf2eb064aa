package session

import (
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// charges keep that no processor time of a runner is charged to two of its executions: what the host counts there is of
// all of them. Its methods may be called at once.
type charges struct {
	mu      sync.Mutex // guards runners
	runners map[runtime.RunnerID]*charge
}

// A charge is of a runner that has executions.
type charge struct {
	executions int
	until      time.Duration // of the host's count: what was used up to there was charged
}

// enter notes an execution that began when the host had counted so much.
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

// leave notes its end, and returns what it is charged: what its agent reported, or else what the host has counted since
// its start, without what others were charged meanwhile. A before of 0 wasn't counted, so that nothing can be said.
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
