// Package evidence reads what the kernel counted for one runner. What was counted
// last stays known after the runner's control groups are gone.
package evidence

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/runtime"
)

// ErrNone says that nothing counts for the runner, and nothing did.
var ErrNone = errors.New("nothing counts for the runner")

// Counters are one runner's. Their methods may be called at once.
type Counters struct {
	log       *zap.Logger
	ownKernel bool

	mu       sync.Mutex      // guards all below
	counter  *cgroup.Counter // of the runner's groups; nil: it never had a sandbox
	outlived int64           // OOM kills that its agent outlived
	last     *runtime.Evidence
	problem  *runtime.Problem // why they can't be read; nil: they can
}

// New returns the counters of a runner that has no sandbox yet. With ownKernel it
// has a kernel of its own.
func New(log *zap.Logger, ownKernel bool) *Counters { return &Counters{log: log, ownKernel: ownKernel} }

// Hold has a new sandbox's groups counted. So many OOM kills were there before.
func (c *Counters) Hold(groups cgroup.Groups, outlived int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counter != nil {
		c.counter.Close()
	}
	c.counter, c.outlived, c.last = cgroup.NewCounter(groups), outlived, nil
}

// Close closes the files. What was counted last stays known.
func (c *Counters) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counter != nil {
		c.counter.Close()
	}
}

// Count reads the counters, and keeps them. They never fall back: while groups
// are being removed, those of commands go before the runner's own.
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

// Latest returns what is counted now, or what was counted last where the groups
// are gone. ErrNone: nothing was counted. Any other error says nothing about the
// runner: its counters can't be read, as Problem says until they can.
func (c *Counters) Latest() (runtime.Evidence, error) {
	c.mu.Lock()
	last := c.last
	c.mu.Unlock()
	now, err := c.Count()
	if err != nil && !Gone(err) {
		err = fmt.Errorf("the cgroup counters of runners are unreadable, so limits aren't reported as causes: %w", err)
	}
	c.note(err)
	switch {
	case err == nil || !Gone(err):
		return now, err
	case last == nil:
		return runtime.Evidence{}, ErrNone
	}
	return *last, nil
}

// note keeps the problem of counters that can't be read.
func (c *Counters) note(err error) {
	c.mu.Lock()
	news := false
	switch {
	case err == nil || Gone(err):
		c.problem = nil
	case c.problem == nil:
		news = true
		c.problem = &runtime.Problem{Subject: "counters", Message: err.Error(), Since: time.Now()}
	}
	c.mu.Unlock()
	if news {
		c.log.Error("a runner's counters can't be read", zap.Error(err))
	}
}

// Problem returns why the counters can't be read; nil: they could.
func (c *Counters) Problem() *runtime.Problem {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.problem
}

// Gone reports whether an error says that the runner has no groups. Any other error
// of reading them says nothing about the runner.
func Gone(err error) bool {
	for _, missing := range []error{ErrNone, fs.ErrNotExist, fs.ErrClosed, unix.ENODEV} {
		if errors.Is(err, missing) {
			return true
		}
	}
	return false
}

// Killed reports whether now has OOM kills that the runner isn't known to have
// outlived.
func (c *Counters) Killed(now runtime.Evidence) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return now.OOMKills > c.outlived
}

// Outlived notes that the runner outlived all OOM kills up to now, and reports
// whether that is news.
func (c *Counters) Outlived(now runtime.Evidence) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	news := now.OOMKills > c.outlived
	c.outlived = max(c.outlived, now.OOMKills)
	return news
}
