package scheduler

import (
	"iter"

	"github.com/hashicorp/go-memdb"

	"github.com/rockpool/rockpool/runtime"
)

// A Snapshot is the state at one index. It never changes, costs nothing to keep, and is safe for
// concurrent use. Its methods return copies.
type Snapshot struct {
	txn   *memdb.Txn
	index uint64
}

// Index returns the number of changes that the snapshot contains. It starts at 0 with every server.
func (s Snapshot) Index() uint64 { return s.index }

// Node returns the machine: its resources, capacity and use.
func (s Snapshot) Node() Node { return *must(s.txn.First(tableNode, "id", "node")).(*Node) }

// Job returns a runner's job, and whether it is known.
func (s Snapshot) Job(id runtime.RunnerID) (job Job, ok bool) {
	if j := s.job(id); j != nil {
		return *j, true
	}
	return job, false
}

// EachEvaluation yields a runner's evaluations, newest first; of all runners for "".
func (s Snapshot) EachEvaluation(job runtime.RunnerID) iter.Seq[Evaluation] {
	return youngest[Evaluation](s, tableEvaluations, job)
}

// EachAllocation yields a runner's allocations, newest first; of all runners for "".
func (s Snapshot) EachAllocation(job runtime.RunnerID) iter.Seq[Allocation] {
	return youngest[Allocation](s, tableAllocations, job)
}

// youngest yields the rows of a table, newest first; with a job only that job's.
func youngest[T any](s Snapshot, table string, job runtime.RunnerID) iter.Seq[T] {
	index, args := "id", []any{}
	if job != "" {
		index, args = "job", []any{string(job)}
	}
	return func(yield func(T) bool) {
		for row := range each[T](must(s.txn.GetReverse(table, index, args...))) {
			if !yield(*row) {
				return
			}
		}
	}
}

// job, evaluation and allocation return the row with an id; nil: there is none. Rows must not be
// changed.
func (s Snapshot) job(id runtime.RunnerID) *Job { return first[Job](s, tableJobs, string(id)) }
func (s Snapshot) evaluation(id runtime.EvaluationID) *Evaluation {
	return first[Evaluation](s, tableEvaluations, string(id))
}
func (s Snapshot) allocation(id runtime.AllocationID) *Allocation {
	return first[Allocation](s, tableAllocations, string(id))
}

// allocations returns a job's allocations, ended ones included, oldest first.
func (s Snapshot) allocations(job runtime.RunnerID) []*Allocation {
	var all []*Allocation
	for a := range each[Allocation](must(s.txn.Get(tableAllocations, "job", string(job)))) {
		all = append(all, a)
	}
	return all
}

// first returns the row with an id; nil: there is none.
func first[T any](s Snapshot, table, id string) *T {
	row, _ := must(s.txn.First(table, "id", id)).(*T)
	return row
}

// each returns the rows of a query, in its order.
func each[T any](rows memdb.ResultIterator) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for row := rows.Next(); row != nil; row = rows.Next() {
			if !yield(row.(*T)) {
				return
			}
		}
	}
}
