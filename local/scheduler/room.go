package scheduler

import (
	"fmt"
	"strings"

	"github.com/rockpool/rockpool/runtime"
)

// dimensions is in the order of vector.
var dimensions = [4]struct {
	name  runtime.Dimension
	field string // its name in the API
	unit  string
}{
	{runtime.DimensionCPU, "cpuMHz", "MHz"},
	{runtime.DimensionMemory, "memoryMiB", "MiB"},
	{runtime.DimensionProcesses, "processes", "processes"},
	{runtime.DimensionWorkspace, "workspaceMiB", "MiB"},
}

// vector returns the amounts in the order of dimensions.
func vector(r runtime.Resources) [4]int {
	return [4]int{r.CPUMHz, r.MemoryMiB, r.Processes, r.WorkspaceMiB}
}

// checkResources returns INVALID_INPUT for the first amount that is out of range. field is the
// prefix of its name.
func checkResources(field string, r runtime.Resources) error {
	for i, amount := range vector(r) {
		if err := runtime.Between(field+"."+dimensions[i].field, int64(amount), 1, 1<<40, dimensions[i].unit); err != nil {
			return err
		}
	}
	return nil
}

// A Node is this machine as the scheduler sees it.
type Node struct {
	Machine  runtime.Resources // its resources
	Capacity runtime.Resources // Machine times the overcommit factors
	Used     runtime.Resources // by allocations that haven't ended; after a restore it can exceed Capacity
}

// Promised returns Used as a share of Capacity, by dimension.
func (n Node) Promised() map[runtime.Dimension]float64 {
	capacity, used := vector(n.Capacity), vector(n.Used)
	shares := map[runtime.Dimension]float64{}
	for i, d := range dimensions {
		shares[d.name] = float64(used[i]) / float64(capacity[i])
	}
	return shares
}

// room is the room that a placement may use.
type room struct {
	capacity runtime.Resources
	used     runtime.Resources
	kept     runtime.Resources // kept for runners that go first
}

// free returns what a placement may still take. It can be negative: after a restore, used can
// exceed capacity.
func (r room) free() runtime.Resources { return r.capacity.Minus(r.used).Minus(r.kept) }

// shortages returns the shortages of wanted. If it fits, there are none.
func (r room) shortages(wanted runtime.Resources) []runtime.Shortage {
	var short []runtime.Shortage
	free, kept, capacity := vector(r.free()), vector(r.kept), vector(r.capacity)
	for i, amount := range vector(wanted) {
		if amount > free[i] {
			short = append(short, runtime.Shortage{
				Dimension: dimensions[i].name,
				Wanted:    int64(amount),
				Free:      int64(max(free[i], 0)),
				Kept:      int64(kept[i]),
				Capacity:  int64(capacity[i]),
			})
		}
	}
	return short
}

// describe returns one text for users about all shortages.
func describe(short []runtime.Shortage) string {
	texts := make([]string, len(short))
	for i, s := range short {
		unit := ""
		for _, d := range dimensions {
			if d.name == s.Dimension && d.name != runtime.DimensionProcesses {
				unit = " " + d.unit
			}
		}
		text := fmt.Sprintf("%s exhausted: %d%s wanted, ", strings.ToLower(string(s.Dimension)), s.Wanted, unit)
		switch {
		case s.Wanted > s.Capacity:
			text += fmt.Sprintf("the machine has only %d%s for runners, so it can never fit: lower this limit of the environment", s.Capacity, unit)
		case s.Kept > 0:
			text += fmt.Sprintf("%d%s free, and %d%s kept for runners that go first", s.Free, unit, s.Kept, unit)
		default:
			text += fmt.Sprintf("%d%s free", s.Free, unit)
		}
		texts[i] = text
	}
	return strings.Join(texts, "; ")
}
