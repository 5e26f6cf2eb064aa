package listing

import (
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"
)

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
