// Package runtime defines Rockpool's vocabulary: environments, runners, claims and executions, the
// typed [Error] of every layer, and [Cluster], the one contract with the place where runners live.
//
// The package holds and checks data and moves it between states. It starts nothing and stores
// nothing. Its values may be copied, and read concurrently while nothing writes to them.
package runtime

import (
	"context"
	"net"
	"time"
)

// A Cluster keeps runners: on this machine (package local) or on HashiCorp Nomad (package nomad).
// Its callers don't know which. Package clustertest holds the suite that every Cluster passes.
//
// Methods are safe for concurrent use, idempotent by id, and end early with
// context.Cause when ctx ends. Errors are of type [Error]: CLUSTER_UNAVAILABLE
// where a retry can help, CONFLICT and RUNNER_GONE as documented below.
//
// The cluster owns environments, runners and claims, and keeps them durably:
// what a method returned nil for survives a SIGKILL of the server.
type Cluster interface {
	// PutEnvironment stores env if the stored revision is env.Revision-1 (a missing
	// environment counts as revision 0), and returns CONFLICT otherwise. Storing an equal
	// environment again is success. It replaces no runner; the pool does that.
	//
	// Nomad: registers a template job of the environment with EnforceIndex and the modify
	// index that was read.
	PutEnvironment(ctx context.Context, env Environment) error

	// DeleteEnvironment removes an environment; a missing one is success. Its runners
	// stay until they are removed.
	//
	// Nomad: the template job is deregistered and purged.
	DeleteEnvironment(ctx context.Context, id EnvironmentID) error

	// Environments returns all that are stored, in no particular order.
	//
	// Nomad: a list of template jobs by prefix, whose meta is read.
	Environments(ctx context.Context) ([]Environment, error)

	// Start records that a runner made from env is wanted, and returns without waiting for it. An
	// id that is known already is success; its priority is then replaced. Runners reports progress,
	// the reason for a wait, ports and readiness. The runner is STARTING until its agent has
	// answered, then IDLE. If the start fails, it is GONE with START_FAILED and a message. A runner
	// with a waiting claim starts before one that refills a pool.
	//
	// Nomad: a job made from the template, registered; the priority becomes
	// the job's.
	Start(ctx context.Context, id RunnerID, env Environment, priority Priority) error

	// Mark stores claim if the stored claim's epoch is claim.Epoch-1. It returns nil if the
	// stored claim equals claim, CONFLICT if it differs, and RUNNER_GONE if the runner
	// doesn't exist. Renewals are Marks too. After any other error the stored claim is
	// unknown, so the caller must remove the runner. Mark never restarts or replaces
	// a runner's processes.
	//
	// Nomad: a variable of the runner's, written with check-and-set on the index
	// that was read; docs/decisions/0007 says why.
	Mark(ctx context.Context, id RunnerID, claim Claim) error

	// Remove ends a runner and all its processes, and forgets it. A missing runner is
	// success. When it returns nil, the runner's processes have ended.
	//
	// Nomad: the job is deregistered and purged (no terminal event follows).
	Remove(ctx context.Context, id RunnerID) error

	// Runners returns the actual state of one environment's runners, or of all for "". A
	// runner that ended unasked is GONE with its reason and last claim until it is
	// removed. States are STARTING, IDLE, CLAIMED, STOPPING and GONE; only the pool knows
	// CLAIMING. Changes made through this Cluster are included immediately. Other changes
	// may be included half a second late; Watch then hints at them.
	//
	// Nomad: joins lists of jobs, allocations and variables; reads only those variables
	// whose index moved.
	Runners(ctx context.Context, env EnvironmentID) ([]Runner, error)

	// Watch calls hint when the runners of an environment ("" for any) may have changed,
	// until ctx ends; it then returns ctx's cause. hint must not block. A hint carries no
	// state: read Runners again. Hints may be lost or repeated. The first one, for "", comes
	// once the watch is established, so no earlier change is missed.
	//
	// Nomad: the event stream, resumed by index, with a list on every
	// reconnect.
	Watch(ctx context.Context, hint func(EnvironmentID)) error

	// Dial opens a new byte stream to the agent in a runner (see package agent). It returns
	// RUNNER_GONE if the runner doesn't exist. A broken stream doesn't prove that the runner
	// is gone; only Runners does.
	//
	// Nomad: a yamux stream over the runner's one "agent bridge", run through
	// alloc exec.
	Dial(ctx context.Context, id RunnerID) (net.Conn, error)

	// Evidence returns the host's counters for a runner, and RUNNER_GONE if nothing is known
	// of the runner, or no longer.
	//
	// Nomad: the allocation's task events (OOM killed) and, through the agent,
	// the counters of its cgroup.
	Evidence(ctx context.Context, id RunnerID) (Evidence, error)

	// TaskEvents returns the latest events of a runner, oldest first, at most KeptTaskEvents.
	// The server that removed a runner keeps its events for a while. It returns none for
	// an unknown runner.
	//
	// Nomad: the allocation's task events, as of the last list.
	TaskEvents(ctx context.Context, id RunnerID) ([]TaskEvent, error)

	// Status returns what the cluster is, and how much of it is promised to runners,
	// including those that are being started or removed.
	//
	// Nomad: the nodes' resources, and those of the live allocations.
	Status(ctx context.Context) (ClusterStatus, error)
}

type spareKey struct{}

// Spare returns a context for a Dial that must not compete with others. If such a Dial would use
// room that others may need, it returns CLUSTER_UNAVAILABLE immediately.
func Spare(ctx context.Context) context.Context { return context.WithValue(ctx, spareKey{}, true) }

// IsSpare reports whether ctx comes from [Spare].
func IsSpare(ctx context.Context) bool { return ctx.Value(spareKey{}) != nil }

// Priority orders starts that wait for room; higher ones go first.
type Priority int

// The priorities.
const (
	PriorityRefill  Priority = 50 // to fill a pool
	PriorityWaiting Priority = 80 // a claim waits for it
)

// Evidence are counters of one runner since its start. They only grow.
type Evidence struct {
	OOMKills         int64 // processes that the kernel killed because the runner's memory was full
	ProcessLimitHits int64 // forks that were refused because of the limit of processes

	// CPU is the processor time of all its processes, including the agent; 0 means the host doesn't count it.
	CPU time.Duration

	// OwnKernel: the runner has a kernel of its own. Only that kernel counts refused forks,
	// and the runner's agent reports them.
	OwnKernel bool

	// Inside: only the runner's agent counts, and it does so for the whole runner.
	Inside bool
}

// A ClusterStatus describes a cluster: its kind, its capacity, and its problems.
type ClusterStatus struct {
	Kind     string // "local" or "nomad"
	Capacity Capacity
	Problems []Problem // in the order in which they were found
	Remark   string    // a restriction of this cluster that is no fault; "" means none
	Draining *Draining // nil means not draining
	CoreMHz  int       // clock of one core; 0 means unknown, or machines differ
	// LargestRunner is the most that one runner can be given; nil means unknown.
	LargestRunner *Resources
	// HostInterpreters are those of Interpreters that the image "host" contains; none means unknown.
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
