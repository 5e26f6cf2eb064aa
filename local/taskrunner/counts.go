package taskrunner

import "github.com/rockpool/rockpool/runtime/tasks"

// NewCounts returns counters for any number of tasks, with a timing for each phase of a start:
// Turn, Prestart, Start, Poststart and Save.
func NewCounts() *tasks.Counts {
	return tasks.New(tasks.Turn, tasks.Prestart, tasks.Start, tasks.Poststart, tasks.Save)
}
