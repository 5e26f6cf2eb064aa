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
func (s Snapshot) Job(id runtime.RunnerID) (Job, bool) { return known(s.job(id)) }

// Jobs returns all jobs, by id.
func (s Snapshot) Jobs() []Job {
	var all []Job
	for j := range each[Job](must(s.txn.Get(tableJobs, "id"))) {
		all = append(all, *j)
	}
	return all
}

// A Filter picks evaluations or allocations; zero fields pick all.
type Filter struct {
	Job         runtime.RunnerID
	Environment runtime.EnvironmentID
	Status      string // of an EvaluationStatus or an AllocationStatus
	Limit       int    // at most so many; 0: no limit
}

// Evaluation returns one evaluation.
func (s Snapshot) Evaluation(id EvaluationID) (Evaluation, bool) { return known(s.evaluation(id)) }

// Evaluations returns those that the filter picks, the youngest first.
func (s Snapshot) Evaluations(f Filter) []Evaluation {
	return pick(s, tableEvaluations, f, func(e *Evaluation) bool {
		return (f.Environment == "" || f.Environment == e.Environment) && (f.Status == "" || f.Status == string(e.Status))
	})
}

// Allocation returns one allocation.
func (s Snapshot) Allocation(id AllocationID) (Allocation, bool) { return known(s.allocation(id)) }

// Allocations returns those that the filter picks, the youngest first.
func (s Snapshot) Allocations(f Filter) []Allocation {
	return pick(s, tableAllocations, f, func(a *Allocation) bool {
		return (f.Environment == "" || f.Environment == a.Environment) && (f.Status == "" || f.Status == string(a.Status))
	})
}

func pick[T any](s Snapshot, table string, f Filter, picks func(*T) bool) []T {
	var all []T
	for row := range youngest[T](s, table, f.Job) {
		if picks(&row) {
			all = append(all, row)
		}
		if f.Limit > 0 && len(all) == f.Limit {
			break
		}
	}
	return all
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
func (s Snapshot) evaluation(id EvaluationID) *Evaluation {
	return first[Evaluation](s, tableEvaluations, string(id))
}
func (s Snapshot) allocation(id AllocationID) *Allocation {
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

func known[T any](row *T) (value T, ok bool) {
	if row == nil {
		return value, false
	}
	return *row, true
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
