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

	"github.com/mdlayher/netlink"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
	"github.com/rockpool/rockpool/runtime/syncs"
)

// watch ends runners whose packet filter was changed, until ctx ends. The kernel reports changes,
// but only to root. So all filters are also verified at intervals.
func (a *Access) watch(ctx context.Context) {
	every := cmp.Or(a.config.VerifyEvery, time.Minute)
	changes := changedTables{wake: syncs.NewHint()}
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

// changedTables are the names of changed tables. Its methods are safe for concurrent use.
type changedTables struct {
	wake syncs.Hint // take returns something

	mu     sync.Mutex      // guards tables
	tables map[string]bool // guarded by mu
}

// add records a changed table, and sends the hint. Tables of other programs are ignored.
func (t *changedTables) add(table string) {
	if table != "" && table != network.SharedTable && !strings.HasPrefix(table, network.TablePrefix) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tables == nil {
		t.tables = map[string]bool{}
	}
	t.tables[table] = true
	t.wake.Send()
}

// take returns the tables that changed since the last call. "" stands for any table.
func (t *changedTables) take() map[string]bool {
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
		if refusal, refused := errors.AsType[*launch.RefusalError](err); !refused || !refusal.Changed {
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

// watchFilters calls changed with the name of each table that was deleted or whose rules were
// changed, until ctx ends. For example, another program's `nft flush ruleset` is reported before
// that program has ended. If messages were lost, any table may have changed, and the name is empty.
// Calls come from this goroutine. It returns an error immediately if this process lacks
// CAP_NET_ADMIN, which listening needs.
func watchFilters(ctx context.Context, changed func(table string)) error {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)})
	if err != nil {
		return fmt.Errorf("listen for changes of packet filters: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	for {
		messages, err := conn.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			changed("")
		case err != nil:
			return err
		}
		for _, m := range messages {
			if table, is := changedTable(m); is {
				changed(table)
			}
		}
	}
}

// changedTable returns the table of a message about a table, chain or rule. The name is empty if the
// message is malformed, and so may be about any table.
func changedTable(m netlink.Message) (table string, is bool) {
	switch kind := int(m.Header.Type); kind - unix.NFNL_SUBSYS_NFTABLES<<8 {
	case unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_DELTABLE, unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
	default:
		return "", false
	}
	const header = 4 // bytes of nfnetlink's own header before the attributes
	if len(m.Data) < header {
		return "", true
	}
	attributes, err := netlink.NewAttributeDecoder(m.Data[header:])
	if err != nil {
		return "", true
	}
	for attributes.Next() {
		if attributes.Type() == unix.NFTA_TABLE_NAME { // chains and rules have their table's name in the same attribute
			return attributes.String(), true
		}
	}
	return "", true
}
