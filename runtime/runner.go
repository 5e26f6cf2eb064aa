package runtime

import (
	"slices"
	"time"
)

// A Runner is one isolated place in which commands run. It serves at most one
// claim in its life.
type Runner struct {
	ID          RunnerID      `json:"id"`
	Environment Environment   `json:"environment"` // as it was when the runner was started
	State       RunnerState   `json:"state"`
	GoneReason  GoneReason    `json:"goneReason,omitempty"` // with STOPPING and GONE only
	Message     string        `json:"message,omitempty"`    // why it is gone, or what its start waits for
	Claim       Claim         `json:"claim"`                // zero until it is claimed
	Ports       []PortMapping `json:"ports,omitempty"`
	Loaded      *Loaded       `json:"loaded,omitempty"` // nil: it has no interpreter loaded
	CreatedAt   time.Time     `json:"createdAt"`
	URL         string        `json:"-"` // where the cluster's own pages show it; "": nowhere
}

// A RunnerUsage is a runner's usage at a time, and its limits. A zero Memory or Processes means that
// nobody could tell.
type RunnerUsage struct {
	CPU          time.Duration // processor time since it was made
	Memory       int64         // bytes
	MemoryLimit  int64
	Processes    int // and threads
	ProcessLimit int
	At           time.Time
}

// A RunnerState is where a runner is in its life. It only moves forward:
//
//	STARTING → IDLE → CLAIMING → CLAIMED → STOPPING → GONE
//	    └────────┴────────┴──────────┴────────┴─────────┘   (any may be skipped)
type RunnerState string

// The states, in their order.
const (
	RunnerStarting RunnerState = "STARTING" // wished for; its agent hasn't answered yet
	RunnerIdle     RunnerState = "IDLE"     // warm: its agent answered
	RunnerClaiming RunnerState = "CLAIMING" // the claim is being made durable
	RunnerClaimed  RunnerState = "CLAIMED"  // someone holds it
	RunnerStopping RunnerState = "STOPPING" // being removed
	RunnerGone     RunnerState = "GONE"     // not there any more
)

var runnerOrder = []RunnerState{RunnerStarting, RunnerIdle, RunnerClaiming, RunnerClaimed, RunnerStopping, RunnerGone}

// Before reports whether a runner in state s can still come to state t.
func (s RunnerState) Before(t RunnerState) bool {
	return slices.Index(runnerOrder, s) < slices.Index(runnerOrder, t)
}

// Advance moves the runner forward to a state, and reports whether it did.
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

// A PortMapping says where a port of a runner is reached from outside.
type PortMapping struct {
	ExposedPort int    `json:"exposedPort"`
	Address     string `json:"address"`
}

// A Claim says who holds a runner and until when. The zero Claim is none.
type Claim struct {
	Epoch             int           `json:"epoch"`            // 1 for the first; one more with every change
	Tenant            TenantID      `json:"tenant,omitempty"` // who holds it
	Key               string        `json:"key,omitempty"`    // the client's idempotency key
	Input             string        `json:"input,omitempty"`  // digest of what was asked with Key
	ClaimedAt         time.Time     `json:"claimedAt"`
	ExpiresAt         time.Time     `json:"expiresAt"`         // zero: never
	InactivityTimeout time.Duration `json:"inactivityTimeout"` // 0: never
	Labels            []Label       `json:"labels,omitempty"`
	Holder            string        `json:"holder,omitempty"`      // the caller's own name for what holds it: a claim with the same one resumes it; it may name a person
	HolderScope       string        `json:"holderScope,omitempty"` // with the environment: in which Holder is unique
}

// Tenant returns whose the runner is: its claim's, or while nobody holds it its
// environment's.
func (r Runner) Tenant() TenantID {
	if r.Claim.Held() {
		return r.Claim.Tenant
	}
	return r.Environment.Tenant
}

// Held reports whether there is a claim.
func (c Claim) Held() bool { return c.Epoch > 0 }

// Equal reports whether c and other say the same.
func (c Claim) Equal(other Claim) bool {
	return c.Epoch == other.Epoch && c.Tenant == other.Tenant && c.Key == other.Key && c.Input == other.Input &&
		c.ClaimedAt.Equal(other.ClaimedAt) && c.ExpiresAt.Equal(other.ExpiresAt) &&
		c.InactivityTimeout == other.InactivityTimeout && slices.Equal(c.Labels, other.Labels) &&
		c.Holder == other.Holder && c.HolderScope == other.HolderScope
}
