package scheduler

import (
	"iter"

	"github.com/hashicorp/go-memdb"

	"github.com/rockpool/rockpool/runtime"
)

// A Snapshot is the state at one index. It never changes and costs nothing to
// keep; any number may read it at once. What it returns is a copy.
type Snapshot struct {
	txn   *memdb.Txn
	index uint64
}

// Index counts the changes that the snapshot holds. It begins anew with every
// server.
func (s Snapshot) Index() uint64 { return s.index }

// Node returns the machine.
func (s Snapshot) Node() Node { return *must(s.txn.First(tableNode, "id", "node")).(*Node) }

// Job returns a runner's job.
func (s Snapshot) Job(id runtime.RunnerID) (job Job, ok bool) {
	if j := s.job(id); j != nil {
		return *j, true
	}
	return job, false
}

// EachEvaluation yields those of a runner, of all for "", the youngest first.
func (s Snapshot) EachEvaluation(job runtime.RunnerID) iter.Seq[Evaluation] {
	return youngest[Evaluation](s, tableEvaluations, job)
}

// EachAllocation yields those of a runner, of all for "", the youngest first.
func (s Snapshot) EachAllocation(job runtime.RunnerID) iter.Seq[Allocation] {
	return youngest[Allocation](s, tableAllocations, job)
}

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

func (s Snapshot) job(id runtime.RunnerID) *Job { return first[Job](s, tableJobs, string(id)) }
func (s Snapshot) evaluation(id runtime.EvaluationID) *Evaluation {
	return first[Evaluation](s, tableEvaluations, string(id))
}
func (s Snapshot) allocation(id runtime.AllocationID) *Allocation {
	return first[Allocation](s, tableAllocations, string(id))
}

// allocations returns a job's, ended ones too, the oldest first.
func (s Snapshot) allocations(job runtime.RunnerID) []*Allocation {
	var all []*Allocation
	for a := range each[Allocation](must(s.txn.Get(tableAllocations, "job", string(job)))) {
		all = append(all, a)
	}
	return all
}

func first[T any](s Snapshot, table, id string) *T {
	row, _ := must(s.txn.First(table, "id", id)).(*T)
	return row
}

func each[T any](rows memdb.ResultIterator) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for row := rows.Next(); row != nil; row = rows.Next() {
			if !yield(row.(*T)) {
				return
			}
		}
	}
}
