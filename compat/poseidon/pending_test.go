package poseidon

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/request"
)

func start(runner runtime.RunnerID, bytes int) request.Start {
	return request.Start{RunnerID: runner, Command: []string{strings.Repeat("x", bytes)}}
}

func (p *pendingExecutions) count() (n int) {
	for _, all := range p.of {
		n += len(all)
	}
	return n
}

// room returns how many KiB a tenant may still use.
func (p *pendingExecutions) room(tenant runtime.TenantID) (n int) {
	var all []*quota.Kept
	for ; ; n++ {
		kept, err := p.memory.Keep(tenant, 1<<10, "a test")
		if err != nil {
			break
		}
		all = append(all, kept)
	}
	for _, kept := range all {
		kept.Free()
	}
	return n
}

// pendingKiB is the memory of these tests.
const pendingKiB = 64 << 10

func newPending() *pendingExecutions {
	return &pendingExecutions{memory: quota.NewMemory(pendingKiB << 10), of: map[runtime.RunnerID][]pendingExecution{}}
}

func TestPendingExecutionsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPending()
		first, _ := p.add(start("one", 1))
		time.Sleep(pendingLife - time.Second)
		second, _ := p.add(start("one", 1))
		time.Sleep(time.Second + time.Millisecond)
		synctest.Wait()
		if _, there := p.take("one", first); there {
			t.Error("the first still waits")
		}
		if _, there := p.take("two", second); there {
			t.Error("it waits for another runner, too")
		}
		if _, there := p.take("one", second); !there {
			t.Error("the second doesn't wait")
		}
		if _, there := p.take("one", second); there {
			t.Error("it can be taken twice")
		}
		if n := p.room("other"); p.count() != 0 || n != pendingKiB/2 || len(p.of) != 0 {
			t.Errorf("%d are left, and room for %d KiB", p.count(), n)
		}
	})
}

func TestPendingExecutionsAreBounded(t *testing.T) {
	p := newPending()
	var ids []string
	for range pendingRunner + 2 {
		id, err := p.add(start("one", 100_000))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if p.count() != pendingRunner || !slices.ContainsFunc(p.of["one"], func(w pendingExecution) bool { return w.id == ids[2] }) {
		t.Errorf("%d wait; the third does: %v", p.count(), p.of["one"][0].id == ids[2])
	}
	filled := func(tenant runtime.TenantID) (err error) {
		for i := 0; err == nil && i < pendingKiB/90; i++ {
			in := start(runtime.NewRunnerID(), 100_000)
			in.Tenant = tenant
			_, err = p.add(in)
		}
		return err
	}
	if err := filled(""); runtime.CodeOf(err) != runtime.CodeQuotaExceeded {
		t.Errorf("one tenant takes all: got %v, want QUOTA_EXCEEDED", err)
	}
	if n := p.room("other"); n < pendingKiB/5 {
		t.Errorf("another one has only %d KiB", n)
	}
	if _, err := p.add(start("one", 100_000)); runtime.CodeOf(err) != runtime.CodeQuotaExceeded || !p.has("one", ids[2]) {
		t.Errorf("what is refused, with %v, replaces the oldest: %v", err, !p.has("one", ids[2]))
	}
	p.drop("one")
	if p.has("one", ids[2]) {
		t.Error("a runner that went leaves its executions")
	}
	if _, err := p.add(start("two", 100_000)); err != nil {
		t.Errorf("it leaves their memory: %v", err)
	}
	for runner := range p.of {
		p.drop(runner)
	}
	if n := p.room(""); n != pendingKiB/2 {
		t.Errorf("all have gone, and there is room for %d KiB", n)
	}
}
