package runtime

import "time"

// A PoolStatus is a snapshot of one environment's pool.
type PoolStatus struct {
	EnvironmentID EnvironmentID
	Revision      int
	Size          int // idle runners wanted
	Idle          int
	Starting      int
	Claimed       int // claims being made durable count too
	Stopping      int
	Waiting       int    // claims that wait for a runner
	Reason        string // why runners can't be had, or the pool stays short of its size; "" where neither is so
	Deleted       bool   // the environment is gone, and this is the pool's last status
	Image         ImageStatus
}

// A PoolAlertState is where an alert is in its life.
type PoolAlertState string

// The states.
const (
	PoolAlertRaised    PoolAlertState = "RAISED"    // too few runners were idle for too long
	PoolAlertReloading PoolAlertState = "RELOADING" // and the cluster is being asked for the truth
	PoolAlertResolved  PoolAlertState = "RESOLVED"  // enough are idle again
)

// A PoolAlert says that a pool has too few idle runners, or has them again.
type PoolAlert struct {
	EnvironmentID EnvironmentID
	State         PoolAlertState
	Since         time.Time // it was raised, or resolved
	Idle, Size    int
	Threshold     float64 // of Idle to Size, under which it is raised
	Reason        string
}

// Standing reports whether the pool is still short of runners.
func (a PoolAlert) Standing() bool {
	return a.State == PoolAlertRaised || a.State == PoolAlertReloading
}

// An Activity is what goes on now, of what the caller sees.
type Activity struct {
	ExecutionsRunning int
	ExecutionsPending int
	FailuresPerMinute int // executions that failed in the last minute
	ClaimsWaiting     int
	Draining          bool // the cluster is being drained
}

// SampleEvery is how long after one another a pool's samples are.
const SampleEvery = 10 * time.Second

// A PoolSample is what a pool was like at one moment.
type PoolSample struct {
	At                               time.Time
	Idle, Claimed, Starting, Waiting int
	Claims                           int // that got a runner since the sample before
	Warm                             int // of those, the ones that found it idle
}

// ClaimStats count a pool's claims.
type ClaimStats struct {
	Claimed int64 // got a runner
	Warm    int64 // of those, the ones that found it idle
	Failed  int64 // got none
	Took    Distribution
}

// A Distribution sums up durations of one kind: the quantiles are of the
// latest thousand.
type Distribution struct {
	Count                   int64 // of all that there ever were
	Min, P50, P90, P99, Max time.Duration
}
