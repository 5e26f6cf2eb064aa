package runtime

import "time"

// A ClusterStatus describes a cluster: its kind, its capacity, and its problems.
type ClusterStatus struct {
	Kind     string // "local" or "nomad"
	Capacity Capacity
	Problems []Problem // in the order in which they were found
	Remark   string    // a restriction of this cluster that is no fault; "": none
	Draining *Draining // nil: not draining
	CoreMHz  int       // clock of one core; 0: unknown, or machines differ
	// LargestRunner is the most that one runner can be given; nil: unknown.
	LargestRunner *Resources
	// HostInterpreters are those of Interpreters that the image "host" contains; none: unknown.
	HostInterpreters []string
}

// Interpreters returns the programs that are searched for to fill HostInterpreters.
func Interpreters() []string {
	return []string{"bash", "c++", "cc", "go", "java", "javac", "node", "python3", "sh"}
}

// Draining says what still keeps a cluster from being drained. All counts are 0 when it is done.
type Draining struct {
	Since      time.Time
	Claimed    int // runners with a holder
	Leaving    int // other runners, which are being removed
	Executions int // that haven't finished
}

// A Problem is a fault that an operator must know of although the cluster still works. Examples are
// an unreadable record and a runner that can't be removed.
type Problem struct {
	Subject string // what it is about: "runner r1"
	Message string
	Since   time.Time
}

// A Capacity is what a cluster's machines have, and how much of it can be promised to runners. That
// is more where it is overcommitted. It also counts what has been promised, whether runners use it
// or not.
type Capacity struct {
	CPUs                int
	CPUMHz              int
	MemoryMiB           int64
	CPUMHzPromisable    int
	MemoryMiBPromisable int64
	CPUMHzUsed          int
	MemoryMiBUsed       int64
}

// Take counts a runner's resources as promised.
func (c *Capacity) Take(r Resources) {
	c.CPUMHzUsed += r.CPUMHz
	c.MemoryMiBUsed += int64(r.MemoryMiB)
}
