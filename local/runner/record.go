package runner

import (
	"net/netip"

	"github.com/rockpool/rockpool/runtime"
)

// A Status is what is stored and shown of a runner. The claim isn't part of it.
type Status struct {
	State   runtime.RunnerState
	Reason  runtime.GoneReason // of one that is GONE
	Message string             // why it is GONE; while it is STARTING, why the last attempt failed
	Removed bool               // nothing is left of it; not stored
	Record
}

// A Record is the part of a runner's status that only the cluster reads: what it needs to find or
// remove everything of the runner.
type Record struct {
	Group   string              `json:"group"`             // its cgroup; the parent is a setting and may change
	Slot    *int                `json:"slot,omitempty"`    // number of its range of user ids, once it is allocated; 0 with a listening helper
	Process *Process            `json:"process,omitempty"` // of its sandbox; from IDLE on
	Leak    string              `json:"leak,omitempty"`    // what couldn't be removed, and why
	Events  []runtime.TaskEvent `json:"events,omitempty"`  // the latest; replaced, never changed in place
}

// A Process is what the record keeps of a running sandbox. It is short, because every claim writes
// the record again.
type Process struct {
	PID     int        `json:"pid"`              // of its first process, in this machine's pid namespace
	Start   uint64     `json:"start"`            // start time of that process, in clock ticks since boot
	Root    string     `json:"root"`             // name of its root directory
	Address netip.Addr `json:"address,omitzero"` // with a network: its address on the machine's side
}

// An Exit is the reason that a runner ended.
type Exit struct {
	Reason  runtime.GoneReason
	Message string
}
