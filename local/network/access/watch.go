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
	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// watch ends runners whose packet filter was changed, until ctx ends. The kernel reports changes,
// but only to root. So all filters are also verified at intervals.
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
			all := tables[""] || tables[network.SharedTable]
			a.verify(ctx, func(r *Runner) bool { return all || tables[network.TablePrefix+network.Name(r.group)] })
		}
	}
}

// listen reports changed packet filters. After a temporary error, such as a lack of descriptors, it retries.
func (a *Access) listen(ctx context.Context, every time.Duration, changed func(table string)) {
	filters := a.config.Listen
	if filters == nil {
		filters = watchFilters
	}
	for {
		err := filters(ctx, changed)
		if ctx.Err() != nil {
			return
		}
		a.log.Info(fmt.Sprintf("packet filters are checked every %s, because the kernel doesn't report changes to this server", every), zap.Error(err))
		if errors.Is(err, fs.ErrPermission) {
			return // permanent
		}
		if backoff.Sleep(ctx, every) != nil {
			return
		}
		changed("") // any table may have changed meanwhile
	}
}

// A touched is the names of changed tables. Its methods are safe for concurrent use.
type touched struct {
	wake chan struct{} // a hint, capacity 1: take returns something

	mu     sync.Mutex      // guards tables
	tables map[string]bool // guarded by mu
}

// add records a changed table, and sends the hint. Tables of other programs are ignored.
func (t *touched) add(table string) {
	if table != "" && table != network.SharedTable && !strings.HasPrefix(table, network.TablePrefix) {
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

// take returns the tables that changed since the last call. "" stands for any table.
func (t *touched) take() map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	tables := t.tables
	t.tables = nil
	return tables
}

// Verify verifies all runners' packet filters, and ends the runners whose filters were changed.
func (a *Access) Verify(ctx context.Context) { a.verify(ctx, func(*Runner) bool { return true }) }

// verify verifies the packet filters of the runners that of selects. It ends a runner only if its
// present filter was certainly changed.
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
		if r.owner.Ending() {
			continue
		}
		err := r.verify(ctx, s.slot)
		var refusal *launch.RefusalError
		if !errors.As(err, &refusal) || !refusal.Changed {
			continue // unchanged, or unknown
		}
		a.mu.Lock()
		same := a.runners[r.id] == r && r.made == s.made // else the filter was removed with the sandbox
		a.mu.Unlock()
		if !same || r.owner.Ending() {
			continue
		}
		a.log.Error("a runner was ended because its packet filter was changed: check which program replaces this machine's packet filters",
			zap.String("runner", string(r.id)), zap.Error(err))
		r.owner.StopOutside("another program of the machine changed its packet filter")
	}
}

// unmap records that ports couldn't be mapped again: another program uses one, or the
// server has no file descriptors left.
func (r *Runner) unmap(to []runtime.PortMapping, err error) {
	r.a.problems.Report(r.subject(), fmt.Sprintf("they couldn't be mapped again; that is retried: %v", err))
	r.reached(nil)
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	r.unmapped = to // last: mapPorts may see it immediately
}

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
			continue // still reported as a problem
		}
		a.mu.Lock()
		ended := r.unmapped == nil // the runner has ended meanwhile
		r.unmapped = nil
		a.mu.Unlock()
		if ended {
			a.ports.Close(string(r.id))
			continue
		}
		a.problems.Resolve(r.subject())
		r.reached(mapped)
	}
}
