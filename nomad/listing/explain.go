package listing

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

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
