package runtime

import (
	"slices"
	"time"
)

// A Runner is one isolated place in which commands run. It serves at most one claim in its life.
type Runner struct {
	ID          RunnerID      `json:"id"`
	Environment Environment   `json:"environment"` // as of the runner's start
	State       RunnerState   `json:"state"`
	GoneReason  GoneReason    `json:"goneReason,omitempty"` // only with STOPPING and GONE
	Message     string        `json:"message,omitempty"`    // why it is gone, or why its start waits
	Claim       Claim         `json:"claim"`                // zero until it is claimed
	Ports       []PortMapping `json:"ports,omitempty"`
	Loaded      *Loaded       `json:"loaded,omitempty"` // nil means no interpreter is loaded
	CreatedAt   time.Time     `json:"createdAt"`
	URL         string        `json:"-"` // of the cluster's own page about it; "" means none
	Lacks       Resources     `json:"-"` // STARTING: the room that it waits for, beyond what is free; the zero value means that it doesn't, or can never fit
}

// A RunnerUsage is a runner's usage at a time, and its limits. A Memory or Processes of 0 means
// unknown.
type RunnerUsage struct {
	CPU          time.Duration // processor time since it was created
	Memory       int64         // bytes
	MemoryLimit  int64
	Processes    int // including threads
	ProcessLimit int
	At           time.Time
}

// A RunnerState says where a runner is in its life. It only moves forward:
//
//	STARTING → IDLE → CLAIMING → CLAIMED → STOPPING → GONE
//	    └────────┴────────┴──────────┴────────┴─────────┘   (any may be skipped)
type RunnerState string

// The states, in their order.
const (
	RunnerStarting RunnerState = "STARTING" // requested; its agent hasn't answered yet
	RunnerIdle     RunnerState = "IDLE"     // warm: its agent answered
	RunnerClaiming RunnerState = "CLAIMING" // the claim is being stored
	RunnerClaimed  RunnerState = "CLAIMED"  // a caller holds it
	RunnerStopping RunnerState = "STOPPING" // being removed
	RunnerGone     RunnerState = "GONE"     // it no longer exists
)

var runnerOrder = []RunnerState{RunnerStarting, RunnerIdle, RunnerClaiming, RunnerClaimed, RunnerStopping, RunnerGone}

// Before reports whether a runner in state s can still move to state t.
func (s RunnerState) Before(t RunnerState) bool {
	return slices.Index(runnerOrder, s) < slices.Index(runnerOrder, t)
}

// Advance moves the runner forward to a state, and reports whether it did. It never moves backward.
func (r *Runner) Advance(to RunnerState) bool {
	if !r.State.Before(to) {
		return false
	}
	r.State = to
	return true
}

// A GoneReason says why a runner is GONE.
type GoneReason string

// The reasons.
const (
	GoneReleased           GoneReason = "RELEASED"
	GoneInactivity         GoneReason = "INACTIVITY"
	GoneReplaced           GoneReason = "REPLACED"
	GoneShrunk             GoneReason = "SHRUNK"
	GoneEnvironmentDeleted GoneReason = "ENVIRONMENT_DELETED"
	GoneStartFailed        GoneReason = "START_FAILED"
	GoneAgentDied          GoneReason = "AGENT_DIED"
	GoneOutOfMemory        GoneReason = "OUT_OF_MEMORY"
	GoneEvicted            GoneReason = "EVICTED"
	GoneDrained            GoneReason = "DRAINED"
	GoneRescheduled        GoneReason = "RESCHEDULED"
	GoneStoppedOutside     GoneReason = "STOPPED_OUTSIDE"
	GoneUnknown            GoneReason = "UNKNOWN"
)

// A PortMapping is the address at which a runner's port is reachable from outside.
type PortMapping struct {
	ExposedPort int    `json:"exposedPort"`
	Address     string `json:"address"`
}

// A Claim is a lease on a runner: who holds it and until when. The zero Claim is none.
type Claim struct {
	Epoch             int           `json:"epoch"`            // 1 at first; each change adds 1
	Tenant            TenantID      `json:"tenant,omitempty"` // of the holder
	Key               string        `json:"key,omitempty"`    // the client's idempotency key
	Input             string        `json:"input,omitempty"`  // digest of the request made with Key
	ClaimedAt         time.Time     `json:"claimedAt"`
	ExpiresAt         time.Time     `json:"expiresAt"`         // the zero time means never
	Expires           Moment        `json:"expires,omitzero"`  // ExpiresAt on the monotonic clock
	InactivityTimeout time.Duration `json:"inactivityTimeout"` // 0 means never
	Labels            []Label       `json:"labels,omitempty"`
	// Holder is the caller's own name for the holder. A claim with the same Holder resumes this
	// one. It may name a person.
	Holder string `json:"holder,omitempty"`
	// HolderScope, together with the environment, is the scope in which Holder is unique.
	HolderScope string `json:"holderScope,omitempty"`
}

// Tenant returns the tenant that owns the runner: its claim's, or its environment's while it is
// unclaimed.
func (r Runner) Tenant() TenantID {
	if r.Claim.Held() {
		return r.Claim.Tenant
	}
	return r.Environment.Tenant
}

// Held reports whether there is a claim.
func (c Claim) Held() bool { return c.Epoch > 0 }

// Equal reports whether c and other are equal.
func (c Claim) Equal(other Claim) bool {
	return c.Epoch == other.Epoch && c.Tenant == other.Tenant && c.Key == other.Key && c.Input == other.Input &&
		c.ClaimedAt.Equal(other.ClaimedAt) && c.ExpiresAt.Equal(other.ExpiresAt) &&
		c.InactivityTimeout == other.InactivityTimeout && slices.Equal(c.Labels, other.Labels) &&
		c.Holder == other.Holder && c.HolderScope == other.HolderScope
}
