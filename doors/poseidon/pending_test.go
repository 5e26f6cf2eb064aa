package poseidon

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/engine"
)

func start(runner runtime.RunnerID, bytes int) engine.StartInput {
	return engine.StartInput{RunnerID: runner, Command: []string{strings.Repeat("x", bytes)}}
}

func (p *pending) count() (n int) {
	for _, all := range p.of {
		n += len(all)
	}
	return n
}

func TestWhatWaitsIsForgotten(t *testing.T) {
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
		if p.count() != 0 || p.bytes != 0 || len(p.of) != 0 {
			t.Errorf("%d are left, with %d bytes", p.count(), p.bytes)
		}
	})
}

func TestWhatWaitsIsBounded(t *testing.T) {
	p := newPending()
	var ids []string
	for range pendingRunner + 2 {
		id, err := p.add(start("one", 100_000))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if p.count() != pendingRunner || !slices.ContainsFunc(p.of["one"], func(w waiting) bool { return w.id == ids[2] }) {
		t.Errorf("%d wait; the third does: %v", p.count(), p.of["one"][0].id == ids[2])
	}
	var refused error
	for i := 0; refused == nil && i < pendingBytes/100_000; i++ {
		_, refused = p.add(start(runtime.NewRunnerID(), 100_000))
	}
	if runtime.CodeOf(refused) != runtime.CodeLimitExceeded || p.bytes > pendingBytes || p.bytes < pendingBytes-200_000 {
		t.Errorf("%v with %d bytes", refused, p.bytes)
	}
	before := p.bytes
	p.drop("one")
	if _, there := p.take("one", ids[2]); there || p.bytes > before-pendingRunner*100_000 {
		t.Errorf("a runner that went leaves its executions: %d bytes", p.bytes)
	}
	for runner := range p.of {
		p.drop(runner)
	}
	if p.bytes != 0 {
		t.Errorf("%d bytes are left", p.bytes)
	}
}
