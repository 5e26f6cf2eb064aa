package runtime

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
	Reason        string // why runners can't be had; "" where they can
	Deleted       bool   // the environment is gone, and this is the pool's last status
}
