package listing

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/nomad/job"
)

// explain returns, for a runner without an allocation, why it waits. Over means that it will never
// get one, and reason says why. The evaluations may be in any order.
func explain(evals []*api.Evaluation) (reason string, over bool) {
	if len(evals) == 0 {
		return "", false
	}
	slices.SortFunc(evals, func(a, b *api.Evaluation) int { return cmp.Compare(b.CreateIndex, a.CreateIndex) })
	// An evaluation that is pending or blocked can still place it.
	over = !slices.ContainsFunc(evals, func(e *api.Evaluation) bool {
		return e.Status == api.EvalStatusPending || e.Status == api.EvalStatusBlocked
	})
	// The newest evaluation that says anything is the reason.
	for _, e := range evals {
		if text := Explain(e); text != "" {
			return text, over
		}
	}
	return "", over
}

// lacks returns what a runner waits for, whose evaluations explain has sorted. It returns nothing for
// a runner that doesn't wait for room, or waits for more than room.
func lacks(evals []*api.Evaluation) []Dimension {
	blocked := slices.ContainsFunc(evals, func(e *api.Evaluation) bool { return e.Status == api.EvalStatusBlocked })
	says := slices.IndexFunc(evals, func(e *api.Evaluation) bool { return len(e.FailedTGAllocs) > 0 })
	if !blocked || says < 0 {
		return nil
	}
	all := Lacks(evals[says])
	if slices.Contains(all, Quota) || slices.Contains(all, Other) {
		return nil
	}
	return all
}

// Explain returns what is wrong with one evaluation; "" if nothing is.
func Explain(e *api.Evaluation) string {
	placement := explainPlacement(e.FailedTGAllocs)
	if e.QuotaLimitReached != "" {
		placement = fmt.Sprintf("the quota %s is used up", e.QuotaLimitReached)
	}
	switch e.Status {
	case api.EvalStatusBlocked:
		return cmp.Or(placement, e.StatusDescription, "it waits for free resources")
	case api.EvalStatusFailed:
		return "Nomad's scheduler gave up: " + cmp.Or(e.StatusDescription, placement, "Nomad gives no reason")
	case api.EvalStatusCancelled:
		return cmp.Or(placement, e.StatusDescription, "its evaluation was cancelled")
	default:
		return placement
	}
}

// explainPlacement returns for example "memory exhausted on 2 nodes (3 nodes evaluated, 1 filtered, 2 exhausted)".
func explainPlacement(failed map[string]*api.AllocationMetric) string {
	var all []string
	for _, group := range slices.Sorted(maps.Keys(failed)) {
		if m := failed[group]; m != nil {
			text := explainMetric(m)
			if group != job.TaskName {
				text = "group " + group + ": " + text
			}
			all = append(all, text)
		}
	}
	return strings.Join(all, "; ")
}

func explainMetric(m *api.AllocationMetric) string {
	var causes []string
	each := func(format string, counts map[string]int) {
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			causes = append(causes, fmt.Sprintf(format, name, nodes(counts[name])))
		}
	}
	each("%s exhausted on %s", m.DimensionExhausted)
	each("quota %s exhausted (%s)", tally(m.QuotaExhausted))
	each("%s filters %s", m.ConstraintFiltered)
	each("class %s is full on %s", m.ClassExhausted)
	each("class %s is filtered on %s", m.ClassFiltered)
	if len(causes) == 0 && m.NodesEvaluated == 0 {
		available := 0
		for _, n := range m.NodesAvailable {
			available += n
		}
		if available == 0 {
			return "no node is ready and eligible in the job's datacenters and pool"
		}
	}
	if len(causes) == 0 {
		causes = []string{"no node fits"}
	}
	return fmt.Sprintf("%s (%s evaluated, %d filtered, %d exhausted)",
		strings.Join(causes, ", "), nodes(m.NodesEvaluated), m.NodesFiltered, m.NodesExhausted)
}

func tally(names []string) map[string]int {
	counts := map[string]int{}
	for _, name := range names {
		counts[name]++
	}
	return counts
}

func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// Attempts returns how many attempts to run a task failed, and how many followed a failed one.
func Attempts(allocations []*api.AllocationListStub) (failed, again int64) {
	again = int64(max(len(allocations)-1, 0))
	for _, a := range allocations {
		failed += int64(Restarts(a))
		again += int64(Restarts(a))
		if a.ClientStatus == api.AllocClientStatusFailed {
			failed++
		}
	}
	return failed, again
}

// Began returns how long a node took to start a task, by its own clock, if it has reported that.
func Began(a *api.AllocationListStub, task string) (time.Duration, bool) {
	state := a.TaskStates[task]
	if state == nil || state.StartedAt.IsZero() {
		return 0, false
	}
	// Both times are the node's, whose clock may differ from the server's.
	i := slices.IndexFunc(state.Events, func(e *api.TaskEvent) bool { return e.Type == api.TaskReceived })
	if i < 0 {
		return 0, false
	}
	return state.StartedAt.Sub(time.Unix(0, state.Events[i].Time)), true
}

// Promised returns the CPU and memory that an allocation's node has promised it.
func Promised(a *api.AllocationListStub) (mhz int, mib int64) {
	if a.AllocatedResources == nil {
		return 0, 0
	}
	for _, task := range a.AllocatedResources.Tasks {
		mhz += int(task.Cpu.CpuShares)
		mib += task.Memory.MemoryMB
	}
	return mhz, mib
}

// A Dimension is a resource that a runner without an allocation may lack.
type Dimension string

// The dimensions.
const (
	CPU    Dimension = "CPU"
	Memory Dimension = "MEMORY"
	Disk   Dimension = "DISK"
	Quota  Dimension = "QUOTA" // of Nomad's namespace
	Other  Dimension = "OTHER" // a node that fits, a port, a device
)

// Dimensions returns all dimensions.
func Dimensions() []Dimension { return []Dimension{CPU, Memory, Disk, Quota, Other} }

var dimensions = map[string]Dimension{"cpu": CPU, "cores": CPU, "memory": Memory, "disk": Disk}

// Lacks returns the dimensions that a blocked evaluation waits for, each once.
func Lacks(e *api.Evaluation) []Dimension {
	var all []Dimension
	add := func(d Dimension) {
		if !slices.Contains(all, d) {
			all = append(all, d)
		}
	}
	if e.QuotaLimitReached != "" {
		add(Quota)
	}
	for _, failed := range e.FailedTGAllocs {
		if len(failed.QuotaExhausted) > 0 {
			add(Quota)
		}
		for word := range failed.DimensionExhausted {
			if d, known := dimensions[word]; known {
				add(d)
			} else {
				add(Other)
			}
		}
	}
	// No resource is exhausted, so no node fits for another reason.
	if len(all) == 0 {
		add(Other)
	}
	return all
}
