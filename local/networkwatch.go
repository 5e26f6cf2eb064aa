package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/network/watch"
	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime"
)

// watchNetworks ends runners whose packet filter isn't what it was, until ctx
// ends. The kernel reports changes, but not to a server that isn't root. So all
// filters are checked at intervals, too.
func (c *Cluster) watchNetworks(ctx context.Context) {
	every := cmp.Or(c.config.Network.verifyEvery, time.Minute)
	changes := touched{wake: make(chan struct{}, 1)}
	var listening sync.WaitGroup
	defer listening.Wait()
	listening.Go(func() { c.listenForFilters(ctx, every, changes.add) })
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.verifyNetworks(ctx, func(*entry) bool { return true })
			c.mapPorts()
		case <-changes.wake:
			tables := changes.take()
			all := tables[""] || tables[sharedTable]
			c.verifyNetworks(ctx, func(e *entry) bool { return all || tables[tablePrefix+network.Name(e.group)] })
		}
	}
}

// listenForFilters has changed packet filters told until ctx ends. What fails for a
// while, such as for want of descriptors, is tried again.
func (c *Cluster) listenForFilters(ctx context.Context, every time.Duration, told func(table string)) {
	listen := c.config.Network.listen
	if listen == nil {
		listen = watch.Filters
	}
	for {
		err := listen(ctx, told)
		if ctx.Err() != nil {
			return
		}
		c.log.Info(fmt.Sprintf("packet filters are checked every %s, because the kernel doesn't report changes to this server", every), zap.Error(err))
		if errors.Is(err, fs.ErrPermission) {
			return // that stays so
		}
		select {
		case <-time.After(every):
			told("") // any may have been changed
		case <-ctx.Done():
			return
		}
	}
}

// Names of packet filters: of all runners together, and of one before its link's.
const sharedTable, tablePrefix = "rockpool", "rockpool-"

// A touched has the tables that somebody changed, of ours.
type touched struct {
	wake chan struct{}

	mu     sync.Mutex
	tables map[string]bool // guarded by mu
}

func (t *touched) add(table string) {
	if table != "" && table != sharedTable && !strings.HasPrefix(table, tablePrefix) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tables == nil {
		t.tables = map[string]bool{}
	}
	t.tables[table] = true
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *touched) take() map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	tables := t.tables
	t.tables = nil
	return tables
}

// verifyNetworks ends those of some runners that aren't kept to their policy.
func (c *Cluster) verifyNetworks(ctx context.Context, of func(*entry) bool) {
	goesOn := func(e *entry) bool {
		return e.runner.Environment.Network.Used() && e.fenced != 0 && !e.removing && e.runner.State.Before(runtime.RunnerStopping)
	}
	all := map[*entry]uint64{}
	c.mu.Lock()
	for _, e := range c.entries {
		if of(e) && goesOn(e) {
			all[e] = e.fenced
		}
	}
	c.mu.Unlock()
	for e, asked := range all {
		err := c.verifyNetwork(ctx, e)
		var refusal *launch.RefusalError
		if !errors.As(err, &refusal) || !refusal.Changed {
			continue // it is as it was, or nobody could find out
		}
		c.mu.Lock()
		ended := !goesOn(e) || e.fenced != asked // meanwhile, and its filter is gone with it: it may have been started again
		c.mu.Unlock()
		if ended {
			continue
		}
		c.log.Error("a runner is ended, since its network isn't kept to its policy any more: does another program replace this machine's packet filter?",
			zap.String("runner", string(e.id)), zap.Error(err))
		e.task.Stop(unfenced)
	}
}

// unfenced is the end of a runner whose packet filter somebody changed.
var unfenced = taskrunner.End{Reason: runtime.GoneStoppedOutside, Message: "its packet filter was changed by another program of the machine"}
