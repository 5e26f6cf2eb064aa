package scheduler

import (
	"fmt"
	"strings"

	"github.com/rockpool/rockpool/runtime"
)

// A Dimension is one of the things that runners take from the machine.
type Dimension string

// The dimensions.
const (
	CPU       Dimension = "cpu"
	Memory    Dimension = "memory"
	Processes Dimension = "processes"
	Workspace Dimension = "workspace"
)

// dimensions are in the order of a vector.
var dimensions = [4]struct {
	name  Dimension
	field string // as the API spells it
	unit  string
}{
	{CPU, "cpuMHz", "MHz"},
	{Memory, "memoryMiB", "MiB"},
	{Processes, "processes", "processes"},
	{Workspace, "workspaceMiB", "MiB"},
}

// Dimensions are all, in a fixed order.
func Dimensions() []Dimension {
	all := make([]Dimension, len(dimensions))
	for i, d := range dimensions {
		all[i] = d.name
	}
	return all
}

func vector(r runtime.Resources) [4]int {
	return [4]int{r.CPUMHz, r.MemoryMiB, r.Processes, r.WorkspaceMiB}
}

func plus(a, b runtime.Resources) runtime.Resources {
	return runtime.Resources{
		CPUMHz:       a.CPUMHz + b.CPUMHz,
		MemoryMiB:    a.MemoryMiB + b.MemoryMiB,
		Processes:    a.Processes + b.Processes,
		WorkspaceMiB: a.WorkspaceMiB + b.WorkspaceMiB,
	}
}

func minus(a, b runtime.Resources) runtime.Resources {
	return runtime.Resources{
		CPUMHz:       a.CPUMHz - b.CPUMHz,
		MemoryMiB:    a.MemoryMiB - b.MemoryMiB,
		Processes:    a.Processes - b.Processes,
		WorkspaceMiB: a.WorkspaceMiB - b.WorkspaceMiB,
	}
}

func fits(wanted, free runtime.Resources) bool {
	return wanted.CPUMHz <= free.CPUMHz && wanted.MemoryMiB <= free.MemoryMiB &&
		wanted.Processes <= free.Processes && wanted.WorkspaceMiB <= free.WorkspaceMiB
}

// room is what a placement may take from.
type room struct {
	capacity runtime.Resources
	used     runtime.Resources
	kept     runtime.Resources // for runners that go first
}

func (r room) free() runtime.Resources { return minus(minus(r.capacity, r.used), r.kept) }

// A Shortage says why a runner can't be placed, in one dimension.
type Shortage struct {
	Dimension Dimension
	Wanted    int
	Free      int // at least 0
	Kept      int // not free, because runners that go first wait for it
	Capacity  int // what the machine has in all
}

// shortages returns what wanted lacks; nothing if it fits.
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
		return text + fmt.Sprintf("the machine has %d%s for runners", s.Capacity, unit)
	case s.Kept > 0:
		return text + fmt.Sprintf("%d%s free beside %d%s for runners that go first", s.Free, unit, s.Kept, unit)
	default:
		return text + fmt.Sprintf("%d%s free", s.Free, unit)
	}
}

func describe(short []Shortage) string {
	words := make([]string, len(short))
	for i, s := range short {
		words[i] = s.String()
	}
	return strings.Join(words, "; ")
}
