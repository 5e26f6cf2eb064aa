package quota

import (
	"fmt"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

var messages = [quotas]string{
	Runners:       "tenant %s holds %d of at most %d runners",
	Waiting:       "tenant %s has %d of at most %d waiting claims",
	Executions:    "tenant %s has %d of at most %d unfinished executions",
	Subscriptions: "tenant %s has %d of at most %d open subscriptions",
	PoolRunners:   "pools of tenant %s have %d of at most %d runners",
	MemoryMiB:     "pools and held runners of tenant %s reserve %d of at most %d MiB of memory",
	CPUMHz:        "pools and held runners of tenant %s reserve %d of at most %d MHz",
	claims:        "tenant %s made %d of at most %d claims in the last 60 s",
	cpu:           "tenant %s used %d of at most %d CPU seconds today (UTC)",
	output:        "executions of tenant %s printed %d of at most %d bytes today (UTC)",
}

// advice says when there is room again, if no time is known.
var advice = [resources]string{
	Runners:       "try again when a runner is released or a waiting claim ends",
	Waiting:       "try again when one has got a runner or given up",
	Executions:    "try again when one has ended",
	Subscriptions: "close one, then try again",
	PoolRunners:   "lower a poolSize or delete an environment",
	MemoryMiB:     "release a runner, or lower poolSize or resources.memoryMiB of an environment",
	CPUMHz:        "release a runner, or lower poolSize or resources.cpuMHz of an environment",
}

// exceeded returns QUOTA_EXCEEDED for a resource of which more is requested. The caller holds mu.
func (a *Account) exceeded(r Resource, used, more int64, after time.Duration) error {
	limit := a.limits[r]
	then := "the quota allows none"
	switch {
	case limit == 0:
		after = 0
	case after > 0:
		then = "try again in " + inWords(after)
	default:
		then = advice[r]
	}
	message := fmt.Sprintf(messages[r], a.tenant, used, limit)
	if more > 1 {
		message += fmt.Sprintf(", and this needs %d more", more)
	}
	pending := int64(0)
	if r == Runners && a.pending > 0 {
		pending = a.pending
		message += fmt.Sprintf(", and %d of its claims are waiting for one each", pending)
	}
	e := runtime.Errorf(runtime.CodeQuotaExceeded, "%s: %s", message, then)
	e.Exceeded = &runtime.Exceeded{Quota: r.String(), Limit: limit, Used: used, Pending: pending, RetryAfter: after}
	return e
}

// inWords formats d, rounded up so that it isn't too short: to seconds, or below one second to
// milliseconds.
func inWords(d time.Duration) string {
	unit := time.Second
	if d < time.Second {
		unit = time.Millisecond
	}
	return fmt.Sprint((d + unit - 1).Truncate(unit))
}
