package taskrunner

import "github.com/rockpool/rockpool/runtime/health"

// NewCounts returns counters for any number of tasks, with a timing for each phase of a start:
// Turn, Prestart, Start, Poststart and Save.
func NewCounts() *health.TaskCounts {
	return health.NewTaskCounts(health.PhaseTurn, health.PhasePrestart, health.PhaseStart, health.PhasePoststart, health.PhaseSave)
}
