package scheduler

import (
	"context"
	"time"

	"github.com/hashicorp/go-memdb"

	"github.com/rockpool/rockpool/runtime"
)

// state holds jobs, evaluations, allocations and the node. Every committed change has an index, one
// more than the last. Rows are never changed in place, so a Snapshot stays as it is. Its methods
// are safe for concurrent use.
type state struct{ db *memdb.MemDB }

// A Node is this machine as the scheduler sees it.
type Node struct {
	Machine  runtime.Resources // its resources
	Capacity runtime.Resources // Machine times the overcommit factors
	Used     runtime.Resources // by allocations that haven't ended; after a restore it can exceed Capacity
}

// Promised returns Used as a share of Capacity, by dimension.
func (n Node) Promised() map[Dimension]float64 {
	capacity, used := vector(n.Capacity), vector(n.Used)
	shares := map[Dimension]float64{}
	for i, d := range dimensions {
		shares[d.name] = float64(used[i]) / float64(capacity[i])
	}
	return shares
}

// newState returns a state that holds only the node.
func newState(node Node) *state {
	db, err := memdb.NewMemDB(schema())
	if err != nil {
		panic("the schema is wrong: " + err.Error()) // the schema is constant
	}
	s := &state{db}
	s.write(func(w *write) { w.put(tableNode, &node) })
	return s
}

// write is one change of the state. Reads through it see its own puts.
type write struct {
	Snapshot // its index is the one that this change will get
	now      time.Time
	dirty    bool
	ordered  bool // an allocation's Desired has changed
}

// write runs do, commits its puts atomically, and returns the new index. Without puts there is no
// new index, and it returns the last one. Writes run one at a time.
func (s *state) write(do func(w *write)) uint64 {
	txn := s.db.Txn(true)
	defer txn.Abort() // in case do panics; after Commit it does nothing
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

// put inserts or replaces a row. It panics for a row of the wrong type.
func (w *write) put(table string, row any) {
	w.dirty = true
	if err := w.txn.Insert(table, row); err != nil {
		panic("put into " + table + ": " + err.Error())
	}
}

// remove deletes a row. It panics if there is no such row.
func (w *write) remove(table string, row any) {
	w.dirty = true
	if err := w.txn.Delete(table, row); err != nil {
		panic("remove from " + table + ": " + err.Error())
	}
}

// putEvaluation inserts or replaces e. It sets e's indexes, and the creation time of a new one.
func (w *write) putEvaluation(e *Evaluation) {
	if e.CreateIndex == 0 {
		e.CreateIndex, e.CreatedAt = w.index, w.now
	}
	e.ModifyIndex = w.index
	w.put(tableEvaluations, e)
}

// putAllocation inserts a, or replaces before with it, and updates the node's Used and the job's
// status in the same write. before is nil for a new allocation.
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
	// Used counts allocations that haven't ended, so it changes only when one starts or ends.
	switch took := before != nil && !before.Status.Ended(); {
	case !took && !a.Status.Ended():
		node.Used = node.Used.Plus(a.Resources)
		w.put(tableNode, &node)
	case took && a.Status.Ended():
		node.Used = node.Used.Minus(a.Resources)
		w.put(tableNode, &node)
	}
	if job := w.job(a.Job); job != nil {
		w.putJob(*job)
	}
}

// putJob stores j with the status derived from its allocations, and returns the row. It writes
// nothing if nothing changed.
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

// snapshot returns the current state.
func (s *state) snapshot() Snapshot {
	txn := s.db.Txn(false)
	return Snapshot{txn: txn, index: indexOf(txn, indexAll)}
}

// reach waits until the state has at least index, and returns a snapshot of it; or ctx's cause.
func (s *state) reach(ctx context.Context, index uint64) (Snapshot, error) {
	for {
		txn := s.db.Txn(false)
		// The watch belongs to the same transaction as the index, so no change in between is
		// missed.
		changed, at := watchIndex(txn, indexAll)
		if at >= index {
			return Snapshot{txn: txn, index: at}, nil
		}
		if err := await(ctx, changed); err != nil {
			return Snapshot{}, err
		}
	}
}

// orders implements Scheduler.Orders.
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

// await returns nil once changed is closed, or ctx's cause.
func await(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// indexOf returns the value of an index; 0: it was never written.
func indexOf(txn *memdb.Txn, name string) uint64 {
	if row, _ := must(txn.First(tableIndexes, "id", name)).(*index); row != nil {
		return row.value
	}
	return 0
}

// watchIndex returns an index as indexOf does, with a channel that is closed when the index
// changes.
func watchIndex(txn *memdb.Txn, name string) (<-chan struct{}, uint64) {
	changed, row, err := txn.FirstWatch(tableIndexes, "id", name)
	if i, _ := must(row, err).(*index); i != nil {
		return changed, i.value
	}
	return changed, 0
}

// must unwraps a read. Reads fail only if the schema lacks a table or index that they name.
func must[T any](value T, err error) T {
	if err != nil {
		panic("read the state: " + err.Error())
	}
	return value
}
