package runtime

import "time"

// A ClusterStatus says what a cluster is, how much of it is taken, and what is
// wrong with it.
type ClusterStatus struct {
	Kind     string // "local" or "nomad"
	Capacity Capacity
	Problems []Problem // in the order in which they were found
	Remark   string    // what is less than elsewhere, and no fault; "": nothing
	Draining *Draining // nil: it isn't being drained
	CoreMHz  int       // the clock of one core; 0: it isn't known, or machines differ
	// LargestRunner is what one runner can be given at most; nil: that isn't known.
	LargestRunner *Resources
	// HostInterpreters are those of Interpreters that the image host has; none: that isn't known.
	HostInterpreters []string
}

// Interpreters returns the programs that HostInterpreters looks for.
func Interpreters() []string {
	return []string{"bash", "c++", "cc", "go", "java", "javac", "node", "python3", "sh"}
}

// Draining says how far a cluster's draining has come: it is done when nothing
// is left.
type Draining struct {
	Since      time.Time
	Claimed    int // runners that somebody holds
	Leaving    int // other runners, which go by themselves
	Executions int // that haven't ended
}

// A Problem is something that an operator has to know of, although the cluster
// goes on without it: a record that can't be read, a runner that can't be
// removed.
type Problem struct {
	Subject string // what it is about: "runner r1"
	Message string
	Since   time.Time
}

// A Capacity is what a cluster's machines have, what of it can be promised to runners, which is
// more where it is overcommitted, and what runners were promised, used by them or not.
type Capacity struct {
	CPUMHz              int
	MemoryMiB           int64
	CPUMHzPromisable    int
	MemoryMiBPromisable int64
	CPUMHzUsed          int
	MemoryMiBUsed       int64
}

// Take counts a runner's resources as used.
func (c *Capacity) Take(r Resources) {
	c.CPUMHzUsed += r.CPUMHz
	c.MemoryMiBUsed += int64(r.MemoryMiB)
}
