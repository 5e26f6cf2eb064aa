package taskrunner

import "github.com/rockpool/rockpool/runtime/tasks"

// NewCounts returns counts for any number of tasks, with the phases of their starts: the
// turn that Config.Turn gives, the hooks, the driver, the hooks again, and Save.
func NewCounts() *tasks.Counts {
	return tasks.New(tasks.Turn, tasks.Prestart, tasks.Start, tasks.Poststart, tasks.Save)
}
