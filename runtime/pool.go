package runtime

import "time"

// A PoolStatus is a snapshot of one environment's pool.
type PoolStatus struct {
	EnvironmentID EnvironmentID
	Revision      int
	Size          int // idle runners wanted
	Idle          int
	Starting      int
	Claimed       int // including claims that are being stored
	Stopping      int
	Waiting       int    // claims that wait for a runner
	Reason        string // why runners are unavailable or the pool is below its size; "" means neither
	Deleted       bool   // the environment was deleted; this is the pool's last status
	Image         ImageStatus
}

// A PoolAlertState says where an alert is in its life.
type PoolAlertState string

// The states.
const (
	PoolAlertRaised    PoolAlertState = "RAISED"    // too few runners were idle for too long
	PoolAlertReloading PoolAlertState = "RELOADING" // and the pool is reading the cluster's state again
	PoolAlertResolved  PoolAlertState = "RESOLVED"  // enough are idle again
)

// A PoolAlert says that a pool has too few idle runners, or has them again.
type PoolAlert struct {
	EnvironmentID EnvironmentID
	State         PoolAlertState
	Since         time.Time // when it was raised or resolved
	Idle, Size    int
	Threshold     float64 // ratio of Idle to Size below which it is raised
	Reason        string
}

// Standing reports whether the pool still has too few runners.
func (a PoolAlert) Standing() bool {
	return a.State == PoolAlertRaised || a.State == PoolAlertReloading
}

// An Activity counts what happens now, as far as the caller may see it.
type Activity struct {
	ExecutionsRunning int
	ExecutionsPending int
	FailuresPerMinute int // executions that failed in the last minute
	ClaimsWaiting     int
	Draining          bool // the cluster is being drained
}

// SampleEvery is the interval between a pool's samples.
const SampleEvery = 10 * time.Second

// A PoolSample is the state of a pool at one moment.
type PoolSample struct {
	At                               time.Time
	Idle, Claimed, Starting, Waiting int
	Claims                           int // that got a runner since the previous sample
	Warm                             int // of those, the ones that got an idle runner
}

// ClaimStats count a pool's claims.
type ClaimStats struct {
	Claimed int64 // got a runner
	Warm    int64 // of those, the ones that got an idle runner
	Failed  int64 // got no runner
	Took    Distribution
}

// A Distribution summarizes durations. Its quantiles are of the latest thousand.
type Distribution struct {
	Count                   int64 // of all since the server started
	Min, P50, P90, P99, Max time.Duration
}
