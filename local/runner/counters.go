package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/runtime"
)

// ErrNone means that there are no counters for the runner, and never were.
var ErrNone = errors.New("the runner has no counters")

// Counters read what the kernel counted for one runner. The last values stay available after its
// cgroups were removed. Their methods are safe for concurrent use.
type Counters struct {
	log       *zap.Logger
	ownKernel bool // its sandbox has its own kernel

	mu       sync.Mutex      // guards the fields below
	counter  *cgroup.Counter // of the runner's cgroups; nil means it never had a sandbox
	survived int64           // OOM kills that the agent is known to have survived
	last     *runtime.Evidence
	problem  *runtime.Problem // why they can't be read; nil means they can be
}

// Open starts reading the cgroups of a new sandbox. survived is the number of OOM kills that it
// survived before.
func (c *Counters) Open(groups cgroup.Groups, survived int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counter != nil {
		c.counter.Close()
	}
	c.counter, c.survived, c.last = cgroup.NewCounter(groups), survived, nil
}

// Close closes the files. The last values stay available.
func (c *Counters) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counter != nil {
		c.counter.Close()
	}
}

// Count reads the counters, and stores the values. They never decrease: while cgroups are removed,
// those of commands go before the runner's own.
func (c *Counters) Count() (runtime.Evidence, error) {
	c.mu.Lock()
	counter := c.counter
	c.mu.Unlock()
	if counter == nil {
		return runtime.Evidence{}, ErrNone
	}
	kills, hits, err := counter.Counts()
	if err != nil {
		return runtime.Evidence{}, err
	}
	now := runtime.Evidence{OOMKills: kills, ProcessLimitHits: hits, CPU: counter.CPU(), OwnKernel: c.ownKernel}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil {
		now.OOMKills, now.ProcessLimitHits = max(now.OOMKills, c.last.OOMKills), max(now.ProcessLimitHits, c.last.ProcessLimitHits)
		now.CPU = max(now.CPU, c.last.CPU)
	}
	c.last = &now
	return now, nil
}

// Latest returns the present values, or the last ones if the cgroups were removed. ErrNone: there
// are none. Any other error only means that the counters can't be read; Problem reports it until
// they can be.
func (c *Counters) Latest() (runtime.Evidence, error) {
	now, err := c.Count()
	unreadable := err != nil && !gone(err)
	if unreadable {
		err = fmt.Errorf("the cgroup counters of runners are unreadable, so limits aren't reported as causes: %w", err)
	}
	c.mu.Lock()
	last, news := c.last, unreadable && c.problem == nil
	switch {
	case news:
		c.problem = &runtime.Problem{Subject: "counters", Message: err.Error(), Since: time.Now()}
	case !unreadable:
		c.problem = nil
	}
	c.mu.Unlock()
	switch {
	case news:
		c.log.Error("a runner's counters can't be read", zap.Error(err))
	case err == nil || unreadable:
	case last == nil:
		return runtime.Evidence{}, ErrNone
	default:
		return *last, nil
	}
	return now, err
}

// Problem returns why the counters can't be read; nil means they can be.
func (c *Counters) Problem() *runtime.Problem {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.problem
}

// gone reports whether an error means that the runner's cgroups don't exist. Any other error says
// nothing about the runner.
func gone(err error) bool {
	missing := []error{ErrNone, fs.ErrNotExist, fs.ErrClosed, unix.ENODEV}
	return slices.ContainsFunc(missing, func(m error) bool { return errors.Is(err, m) })
}

// Killed reports whether now has OOM kills that the runner isn't known to have survived.
func (c *Counters) Killed(now runtime.Evidence) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return now.OOMKills > c.survived
}

// Survived records that the runner survived all OOM kills up to now, and reports whether that is
// new.
func (c *Counters) Survived(now runtime.Evidence) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	news := now.OOMKills > c.survived
	c.survived = max(c.survived, now.OOMKills)
	return news
}

// answerAfterKill bounds how long an agent may take to answer after the kernel killed something in
// its runner for memory.
const answerAfterKill = 2 * time.Second

// Evidence returns what the kernel counted, like [Counters.Latest]. The kernel may have killed the
// agent, or the runner's own kernel, whose end takes a while. Only an answer of the agent proves that
// it survived an out-of-memory kill.
func (r *Runner) Evidence(ctx context.Context) (runtime.Evidence, error) {
	c := r.Sandbox.Counters
	now, err := c.Latest()
	if err != nil || !c.Killed(now) {
		return now, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerAfterKill)
	defer cancel()
	if r.Sandbox.Ping(ctx) == nil && c.Survived(now) {
		r.log.Info("the kernel killed a process for memory, and the runner's agent survived")
	}
	return now, nil
}
