package scheduler

import (
	"fmt"
	"strings"

	"github.com/rockpool/rockpool/runtime"
)

// A Dimension is a resource of the machine that runners take.
type Dimension string

// The dimensions.
const (
	CPU       Dimension = "cpu"
	Memory    Dimension = "memory"
	Processes Dimension = "processes"
	Workspace Dimension = "workspace"
)

// dimensions is in the order of vector.
var dimensions = [4]struct {
	name  Dimension
	field string // its name in the API
	unit  string
}{
	{CPU, "cpuMHz", "MHz"},
	{Memory, "memoryMiB", "MiB"},
	{Processes, "processes", "processes"},
	{Workspace, "workspaceMiB", "MiB"},
}

// Dimensions returns all dimensions in a fixed order.
func Dimensions() []Dimension {
	all := make([]Dimension, len(dimensions))
	for i, d := range dimensions {
		all[i] = d.name
	}
	return all
}

// vector returns the amounts in the order of dimensions.
func vector(r runtime.Resources) [4]int {
	return [4]int{r.CPUMHz, r.MemoryMiB, r.Processes, r.WorkspaceMiB}
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

// A Shortage is why a runner can't be placed now, in one dimension.
type Shortage struct {
	Dimension Dimension
	Wanted    int
	Free      int // at least 0
	Kept      int // kept for runners that go first, so it isn't free
	Capacity  int // of the machine, overcommitted
}

// shortages returns the shortages of wanted; nil: it fits.
func (r room) shortages(wanted runtime.Resources) []Shortage {
	var short []Shortage
	free, kept, capacity := vector(r.free()), vector(r.kept), vector(r.capacity)
	for i, amount := range vector(wanted) {
		if amount > free[i] {
			short = append(short, Shortage{
				Dimension: dimensions[i].name,
				Wanted:    amount,
				Free:      max(free[i], 0),
				Kept:      kept[i],
				Capacity:  capacity[i],
			})
		}
	}
	return short
}

// String describes the shortage for users.
func (s Shortage) String() string {
	unit := ""
	if s.Dimension != Processes {
		for _, d := range dimensions {
			if d.name == s.Dimension {
				unit = " " + d.unit
			}
		}
	}
	text := fmt.Sprintf("%s exhausted: %d%s wanted, ", s.Dimension, s.Wanted, unit)
	switch {
	case s.Wanted > s.Capacity:
		return text + fmt.Sprintf("the machine has only %d%s for runners, so it can never fit: lower this limit of the environment", s.Capacity, unit)
	case s.Kept > 0:
		return text + fmt.Sprintf("%d%s free, and %d%s kept for runners that go first", s.Free, unit, s.Kept, unit)
	default:
		return text + fmt.Sprintf("%d%s free", s.Free, unit)
	}
}

// describe returns one text for users about all shortages.
func describe(short []Shortage) string {
	words := make([]string, len(short))
	for i, s := range short {
		words[i] = s.String()
	}
	return strings.Join(words, "; ")
}
