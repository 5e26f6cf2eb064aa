package runtime

import (
	"context"
	"net"
	"time"
)

// A Cluster keeps runners: on this machine (package local) or on HashiCorp
// Nomad (package nomad). What is above it doesn't know which. Package
// clustertest holds the suite that every Cluster passes.
//
// Methods are safe for concurrent use, idempotent by id, and end early with
// context.Cause when ctx ends. Errors are of type [Error]: CLUSTER_UNAVAILABLE
// where trying again can help, CONFLICT and RUNNER_GONE as told below.
//
// The cluster owns environments, runners and claims, and keeps them durably:
// what a method returned nil for survives a SIGKILL of the server.
type Cluster interface {
	// PutEnvironment stores env if the stored revision is env.Revision-1 (none
	// stored counts as 0), and returns CONFLICT otherwise; storing what is
	// stored already is success. It replaces no runner: that is the pool's to
	// do.
	//
	// Nomad: a template job of the environment, registered with
	// EnforceIndex and the modify index that was read.
	PutEnvironment(ctx context.Context, env Environment) error

	// DeleteEnvironment forgets an environment; one that isn't there is
	// success. Its runners stay until they are removed.
	//
	// Nomad: the template job is deregistered and purged.
	DeleteEnvironment(ctx context.Context, id EnvironmentID) error

	// Environments returns all that are stored, in no particular order.
	//
	// Nomad: a prefix list of template jobs, their meta read.
	Environments(ctx context.Context) ([]Environment, error)

	// Start records the wish for a runner made from env and returns; an id
	// that is known already is success, and its latest priority holds
	// from then on. Progress, the reason for a wait, ports and readiness are in
	// Runners: the runner is STARTING until its agent
	// answered, then IDLE, or GONE with START_FAILED and a message. A runner
	// that a claim waits for goes before one that refills.
	//
	// Nomad: a job made from the template, registered; the priority becomes
	// the job's.
	Start(ctx context.Context, id RunnerID, env Environment, priority Priority) error

	// Mark stores claim if the stored claim's epoch is claim.Epoch-1; it
	// returns nil if the stored claim equals claim, else CONFLICT, and
	// RUNNER_GONE if there is no such runner. Renewals are Marks too. After
	// any other error nobody knows what is stored: the caller burns the
	// runner. Marking never restarts or replaces what runs.
	//
	// Nomad: a variable of the runner's, written with check-and-set on the index
	// that was read; docs/decisions/0007 says why.
	Mark(ctx context.Context, id RunnerID, claim Claim) error

	// Remove ends a runner and all that runs in it, and forgets it; nil if it
	// isn't there. When it returns nil the runner's processes are gone.
	//
	// Nomad: the job is deregistered and purged (no terminal event follows).
	Remove(ctx context.Context, id RunnerID) error

	// Runners returns the truth about the runners of one environment, or of
	// all for "". A runner that ended by itself is GONE with its reason and
	// last claim, until it is removed. States are STARTING, IDLE, CLAIMED,
	// STOPPING and GONE; CLAIMING is known to the pool only. What was done through
	// this Cluster is in it at once; what happened by itself may be in it half a
	// second later, and is hinted at.
	//
	// Nomad: lists of jobs, allocations and variables, joined; of the variables
	// only those are read whose index moved.
	Runners(ctx context.Context, env EnvironmentID) ([]Runner, error)

	// Watch calls hint when the runners of an environment may have changed
	// ("" for any), until ctx ends, and returns ctx's cause. A hint never
	// blocks and says only: look again. Hints may be missing or repeated, but
	// the first, for "", comes once it watches: nobody misses what was before.
	//
	// Nomad: the event stream, resumed by index, with a list on every
	// reconnect.
	Watch(ctx context.Context, hint func(EnvironmentID)) error

	// Dial opens one new byte stream to the agent in a runner (see package
	// agent), and returns RUNNER_GONE if there is no such runner. A stream
	// that breaks is no evidence of death; Runners is.
	//
	// Nomad: a yamux stream over the runner's one "agent bridge", run through
	// alloc exec.
	Dial(ctx context.Context, id RunnerID) (net.Conn, error)

	// Evidence returns what the host counted for a runner, and RUNNER_GONE if
	// nothing is known of it (any more).
	//
	// Nomad: the allocation's task events (OOM killed) and, through the agent,
	// the counters of its cgroup.
	Evidence(ctx context.Context, id RunnerID) (Evidence, error)

	// TaskEvents returns what happened to a runner, the oldest first, the latest
	// KeptTaskEvents at most. Of one that was removed they are known for a while,
	// by the server that removed it; none where nothing is known (any more).
	//
	// Nomad: the allocation's task events, as the last list told them.
	TaskEvents(ctx context.Context, id RunnerID) ([]TaskEvent, error)

	// Status returns what the cluster is, and how much of it is taken by
	// runners, those that are being started or removed included.
	//
	// Nomad: the nodes' resources, and those of the live allocations.
	Status(ctx context.Context) (ClusterStatus, error)
}

type spareKey struct{}

// Spare returns a ctx for a Dial that others must not notice: where it would take room that they may
// need it returns CLUSTER_UNAVAILABLE at once.
func Spare(ctx context.Context) context.Context { return context.WithValue(ctx, spareKey{}, true) }

// IsSpare reports whether ctx comes from [Spare].
func IsSpare(ctx context.Context) bool { return ctx.Value(spareKey{}) != nil }

// Priority orders starts that wait for room.
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

	// CPU is the processor time of all of its processes, agent included; 0: the host doesn't count it.
	CPU time.Duration

	// OwnKernel: the runner has a kernel of its own, which alone counts the forks
	// that it refuses; its agent tells them.
	OwnKernel bool

	// Inside: nobody but the runner's agent counts, for all of the runner.
	Inside bool
}
