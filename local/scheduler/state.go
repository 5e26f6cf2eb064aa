package scheduler

import (
	"context"
	"time"

	"github.com/hashicorp/go-memdb"

	"github.com/rockpool/rockpool/runtime"
)

// state is the one truth: jobs, evaluations, allocations and the node. Every
// change that was committed has an index, one more than the last. Rows are
// never changed in place, so that a Snapshot stays what it was.
type state struct{ db *memdb.MemDB }

// A Node is this machine.
type Node struct {
	Machine  runtime.Resources // what it has
	Capacity runtime.Resources // what of that can be promised: more, where it is overcommitted
	Used     runtime.Resources // by allocations that haven't ended; after a restore it can be above Capacity
}

// Promised returns which share of what can be promised is Used.
func (n Node) Promised() map[Dimension]float64 {
	capacity, used := vector(n.Capacity), vector(n.Used)
	shares := map[Dimension]float64{}
	for i, d := range dimensions {
		shares[d.name] = float64(used[i]) / float64(capacity[i])
	}
	return shares
}

func newState(node Node) *state {
	db, err := memdb.NewMemDB(schema())
	if err != nil {
		panic("the schema is wrong: " + err.Error()) // it is a constant
	}
	s := &state{db}
	s.write(func(w *write) { w.put(tableNode, &node) })
	return s
}

// write is one change of the state; reads through it see what it has put.
type write struct {
	Snapshot // its index is the one that the change will have
	now      time.Time
	dirty    bool
	ordered  bool // what is desired of an allocation has changed
}

// write commits what do puts, all of it or, if that is nothing, no index. It
// returns the index of the state that holds it. One write is at work at a time.
func (s *state) write(do func(w *write)) uint64 {
	txn := s.db.Txn(true)
	defer txn.Abort() // of what panicked; after Commit it does nothing
	last := indexOf(txn, indexAll)
	w := &write{Snapshot: Snapshot{txn: txn, index: last + 1}, now: time.Now()}
	do(w)
	if !w.dirty {
		return last
	}
	w.put(tableIndexes, &index{indexAll, w.index})
	if w.ordered {
		w.put(tableIndexes, &index{indexOrders, w.index})
	}
	txn.Commit()
	return w.index
}

// put inserts or replaces a row. Only a row that doesn't belong in its table
// can't be put.
func (w *write) put(table string, row any) {
	w.dirty = true
	if err := w.txn.Insert(table, row); err != nil {
		panic("put into " + table + ": " + err.Error())
	}
}

func (w *write) remove(table string, row any) {
	w.dirty = true
	if err := w.txn.Delete(table, row); err != nil {
		panic("remove from " + table + ": " + err.Error())
	}
}

func (w *write) putEvaluation(e *Evaluation) {
	if e.CreateIndex == 0 {
		e.CreateIndex, e.CreatedAt = w.index, w.now
	}
	e.ModifyIndex = w.index
	w.put(tableEvaluations, e)
}

// putAllocation puts a in place of before, nil for a new one, and keeps the
// node's Used and the job's status in step with it.
func (w *write) putAllocation(before, a *Allocation) {
	if before == nil {
		a.CreateIndex, a.CreatedAt = w.index, w.now
	}
	if before == nil || before.Desired != a.Desired {
		a.DesiredIndex, w.ordered = w.index, true
	}
	a.ModifyIndex = w.index
	w.put(tableAllocations, a)
	node := w.Node()
	switch took := before != nil && !before.Status.Ended(); {
	case !took && !a.Status.Ended():
		node.Used = plus(node.Used, a.Resources)
		w.put(tableNode, &node)
	case took && a.Status.Ended():
		node.Used = minus(node.Used, a.Resources)
		w.put(tableNode, &node)
	}
	if job := w.job(a.Job); job != nil {
		w.putJob(*job)
	}
}

// putJob puts j with the status that follows from its allocations, unless that
// changes nothing, and returns the row.
func (w *write) putJob(j Job) *Job {
	before := w.job(j.ID)
	if before == nil {
		j.CreateIndex, j.CreatedAt = w.index, w.now
	}
	j.Status = j.statusOf(w.allocations(j.ID))
	if before != nil && *before == j {
		return before
	}
	if j.Status == JobDead && j.EndedAt.IsZero() {
		j.EndedAt = w.now
	}
	j.ModifyIndex = w.index
	w.put(tableJobs, &j)
	return &j
}

// snapshot returns the state as it is now.
func (s *state) snapshot() Snapshot {
	txn := s.db.Txn(false)
	return Snapshot{txn: txn, index: indexOf(txn, indexAll)}
}

// reach returns a snapshot of at least index, and waits for it until ctx ends.
func (s *state) reach(ctx context.Context, index uint64) (Snapshot, error) {
	for {
		txn := s.db.Txn(false)
		changed, at := watchIndex(txn, indexAll)
		if at >= index {
			return Snapshot{txn: txn, index: at}, nil
		}
		if err := await(ctx, changed); err != nil {
			return Snapshot{}, err
		}
	}
}

// orders blocks until what is desired of an allocation has changed after an
// index, and returns those where it did, oldest change first.
func (s *state) orders(ctx context.Context, after uint64) ([]Allocation, uint64, error) {
	for {
		txn := s.db.Txn(false)
		changed, at := watchIndex(txn, indexOrders)
		if at > after {
			var all []Allocation
			rows := must(txn.LowerBound(tableAllocations, "desired", after+1))
			for a := range each[Allocation](rows) {
				all = append(all, *a)
			}
			return all, at, nil
		}
		if err := await(ctx, changed); err != nil {
			return nil, after, err
		}
	}
}

func await(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func indexOf(txn *memdb.Txn, name string) uint64 {
	if row, _ := must(txn.First(tableIndexes, "id", name)).(*index); row != nil {
		return row.value
	}
	return 0
}

func watchIndex(txn *memdb.Txn, name string) (<-chan struct{}, uint64) {
	changed, row, err := txn.FirstWatch(tableIndexes, "id", name)
	if i, _ := must(row, err).(*index); i != nil {
		return changed, i.value
	}
	return changed, 0
}

// must is for reads, which fail only where the schema lacks what they name.
func must[T any](value T, err error) T {
	if err != nil {
		panic("read the state: " + err.Error())
	}
	return value
}
