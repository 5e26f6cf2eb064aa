package access

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
	"github.com/rockpool/rockpool/local/network/ports"
	"github.com/rockpool/rockpool/local/network/watch"
	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime"
)

// watch ends runners whose packet filter isn't what it was, until ctx ends. The
// kernel reports changes, but not to a server that isn't root. So all filters are
// verified at intervals, too.
func (a *Access) watch(ctx context.Context) {
	every := cmp.Or(a.config.VerifyEvery, time.Minute)
	changes := touched{wake: make(chan struct{}, 1)}
	var listening sync.WaitGroup
	defer listening.Wait()
	listening.Go(func() { a.listen(ctx, every, changes.add) })
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			a.Verify(ctx)
			a.mapPorts()
		case <-changes.wake:
			tables := changes.take()
			all := tables[""] || tables[sharedTable]
			a.verify(ctx, func(r *Runner) bool { return all || tables[tablePrefix+network.Name(r.group)] })
		}
	}
}

// listen reports changed packet filters until ctx ends. What fails for a while, such
// as for want of descriptors, is tried again.
func (a *Access) listen(ctx context.Context, every time.Duration, told func(table string)) {
	filters := a.config.Listen
	if filters == nil {
		filters = watch.Filters
	}
	for {
		err := filters(ctx, told)
		if ctx.Err() != nil {
			return
		}
		a.log.Info(fmt.Sprintf("packet filters are checked every %s, because the kernel doesn't report changes to this server", every), zap.Error(err))
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
	wake chan struct{} // capacity 1

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

// unfenced is the end of a runner whose packet filter somebody changed.
var unfenced = taskrunner.End{Reason: runtime.GoneStoppedOutside, Message: "its packet filter was changed by another program of the machine"}

// Verify ends all runners whose networks aren't kept to their policies.
func (a *Access) Verify(ctx context.Context) { a.verify(ctx, func(*Runner) bool { return true }) }

func (a *Access) verify(ctx context.Context, of func(*Runner) bool) {
	type sandbox struct {
		slot int
		made uint64
	}
	all := map[*Runner]sandbox{}
	a.mu.Lock()
	for _, r := range a.runners {
		if of(r) {
			all[r] = sandbox{r.slot, r.made}
		}
	}
	a.mu.Unlock()
	for r, s := range all {
		if r.owner.Leaving() {
			continue
		}
		err := r.verify(ctx, s.slot)
		var refusal *launch.RefusalError
		if !errors.As(err, &refusal) || !refusal.Changed {
			continue // it is as it was, or nobody could find out
		}
		a.mu.Lock()
		same := a.runners[r.id] == r && r.made == s.made // else its filter is gone with its sandbox
		a.mu.Unlock()
		if !same || r.owner.Leaving() {
			continue
		}
		a.log.Error("a runner is ended, since its network isn't kept to its policy any more: does another program replace this machine's packet filter?",
			zap.String("runner", string(r.id)), zap.Error(err))
		r.owner.Stop(unfenced)
	}
}

// unmap notes that ports could not be mapped again when the server started: one was
// taken, or no descriptors were left.
func (r *Runner) unmap(to []ports.Mapping, err error) {
	r.a.problems.Report(r.subject(), fmt.Sprintf("they aren't mapped any more, and will be once that can be done: %v", err))
	r.reached(nil)
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	r.unmapped = to // last: mapPorts may be waiting for it
}

// mapPorts tries again to map what could not be mapped.
func (a *Access) mapPorts() {
	var waiting []*Runner
	a.mu.Lock()
	for _, r := range a.runners {
		if r.unmapped != nil {
			waiting = append(waiting, r)
		}
	}
	a.mu.Unlock()
	for _, r := range waiting {
		a.mu.Lock()
		address, to := r.address, r.unmapped
		a.mu.Unlock()
		mapped, err := a.ports.Open(string(r.id), address, to)
		if err != nil {
			continue // as is reported
		}
		a.mu.Lock()
		ended := r.unmapped == nil // meanwhile
		r.unmapped = nil
		a.mu.Unlock()
		if ended {
			a.ports.Close(string(r.id))
			continue
		}
		a.problems.Resolve(r.subject())
		r.reached(shown(mapped))
	}
}
