package scheduler

import (
	"fmt"
	"slices"
	"testing"

	"github.com/rockpool/rockpool/runtime"
)

// blockedBed is a blocked for a machine with only memory.
type blockedBed struct {
	*blocked
	free  int
	woken []runtime.RunnerID
}

func newBlockedBed(free int) *blockedBed {
	b := &blockedBed{free: free}
	node := func() Node {
		return Node{Capacity: runtime.Resources{MemoryMiB: 1000}, Used: runtime.Resources{MemoryMiB: 1000 - b.free}}
	}
	b.blocked = newBlocked(node, func(e *Evaluation) { b.woken = append(b.woken, e.Job) }, &stats{})
	return b
}

func (b *blockedBed) add(job, environment string, priority runtime.Priority, memoryMiB int) *Evaluation {
	e := &Evaluation{
		ID: runtime.EvaluationID("e-" + job), Job: runtime.RunnerID(job), Environment: runtime.EnvironmentID(environment), Priority: priority,
		Reason: "for " + job, wanted: runtime.Resources{MemoryMiB: memoryMiB}, Shortages: []Shortage{{Dimension: Memory}},
	}
	b.block(e)
	return e
}

func (b *blockedBed) wakes(t *testing.T, want ...runtime.RunnerID) {
	t.Helper()
	if !slices.Equal(b.woken, want) {
		t.Errorf("woken %v, want %v", b.woken, want)
	}
	b.woken = nil
}

// Room may be freed between the check that found none and the block.
func TestBlockWakesIfThereIsRoom(t *testing.T) {
	b := newBlockedBed(256)
	b.add("a", "x", 50, 256)
	b.wakes(t, "a")
}

func TestRoomIsPromisedOnce(t *testing.T) {
	b := newBlockedBed(0)
	first := b.add("a", "x", 50, 256)
	b.add("b", "x", 50, 256)
	b.free = 300
	b.wakeFitting()
	b.wakeFitting()
	b.wakes(t, "a")
	kept := func(job runtime.RunnerID, priority runtime.Priority) int {
		return b.kept(job, priority, runtime.Resources{MemoryMiB: 1000}).MemoryMiB
	}
	if kept("new", 50) != 256 || kept("new", 80) != 0 || kept("a", 50) != 0 {
		t.Errorf("kept: %d, %d, %d", kept("new", 50), kept("new", 80), kept("a", 50))
	}
	b.block(first) // another one was faster, and has ended again
	b.wakes(t, "a")
	b.done("a")
	b.wakes(t, "b")
	if b.done("b") == nil || b.done("b") != nil {
		t.Error("b isn't done once")
	}
}

func TestWakingFollowsPriority(t *testing.T) {
	b := newBlockedBed(0)
	b.add("huge", "x", 80, 2000) // never fits, and blocks nobody
	b.add("a1", "x", 50, 100)
	b.add("a2", "x", 50, 100)
	b.add("b1", "y", 50, 300) // doesn't fit at first: it is skipped
	b.add("c1", "z", 50, 100)
	b.add("claim", "x", 80, 100)
	b.free = 250
	b.wakeFitting()
	b.wakes(t, "claim", "a1")
	b.free = 750
	b.wakeFitting()
	b.wakes(t, "b1", "c1", "a2")
	b.add("claim-2", "x", 80, 400)
	b.add("refill", "x", 50, 40) // 50 are free, but kept for the claim
	b.wakes(t)
	if got := b.kept("any", 50, runtime.Resources{MemoryMiB: 1000}).MemoryMiB; got != 700+400 {
		t.Errorf("kept: %d", got)
	}
	b.done("claim-2")
	b.wakes(t, "refill")
	if all, lacking := b.count(); all != 7 || lacking[Memory] != 7 || b.of("huge").Reason != "for huge" || b.of("nobody") != nil {
		t.Errorf("%d are blocked: %v; %q", all, lacking, b.of("huge").Reason)
	}
}

// A plan that is refused because of another one in its batch is answered before the commit, with
// the index that the commit will have.
func TestRefusalReturnsTheIndexToWaitFor(t *testing.T) {
	s := newState(Node{Capacity: one})
	p := newPlanner(s, func(delivery) bool { return true }, &stats{})
	s.write(func(w *write) { w.putJob(job("a", "x", 50)); w.putJob(job("b", "x", 50)) })
	snap := s.snapshot()
	var batch []submission
	for _, j := range snap.Jobs() {
		made, _ := reconcile(&j, nil, room{capacity: one})
		made.delivery.Evaluation = &Evaluation{}
		batch = append(batch, submission{made, make(chan answered, 1)})
	}
	p.apply(batch)
	if a, b := <-batch[0].answer, <-batch[1].answer; !a.placed || a.refresh != 0 || b.placed || b.refresh != snap.index+1 {
		t.Errorf("%+v, %+v after index %d", a, b, snap.index)
	}
	p.apply(batch[1:])
	if b := <-batch[1].answer; b.refresh != s.snapshot().index {
		t.Errorf("%+v at index %d", b, s.snapshot().index)
	}
}

func TestPlansOfABatchGoByPriority(t *testing.T) {
	p := newPlanner(newState(Node{}), nil, &stats{})
	var first submission
	for i, priority := range []runtime.Priority{50, 80, 50, 100} {
		made := plan{delivery: delivery{Evaluation: &Evaluation{ID: runtime.EvaluationID(fmt.Sprint(i)), Priority: priority}}}
		if i == 0 {
			first = submission{plan: made}
		} else {
			p.plans <- submission{plan: made}
		}
	}
	var order []runtime.EvaluationID
	for _, s := range p.gather(first) {
		order = append(order, s.delivery.ID)
	}
	if !slices.Equal(order, []runtime.EvaluationID{"3", "1", "0", "2"}) {
		t.Errorf("order: %v", order)
	}
}
