package runtime

import "time"

// A Moment is the stored form of a time on the machine's monotonic clock (CLOCK_MONOTONIC), which nobody
// can set. It stands still while the machine is suspended. It has a meaning until the machine boots again.
// The zero Moment is unknown.
type Moment struct {
	Boot string        `json:"boot"`
	At   time.Duration `json:"at"` // since that boot
}
