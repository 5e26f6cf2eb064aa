package quota

import (
	"fmt"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// messages say what is used, and of how much.
var messages = [quotas]string{
	Runners:       "tenant %s holds %d runners of at most %d",
	Waiting:       "%[2]d claims of tenant %[1]s wait, of at most %[3]d",
	Executions:    "%[2]d executions of tenant %[1]s haven't ended, of at most %[3]d",
	Subscriptions: "tenant %s has %d subscriptions open, of at most %d",
	claims:        "tenant %s made %d claims within 60 s, of at most %d",
	cpu:           "tenant %s used %d CPU seconds today (UTC), of at most %d",
	output:        "executions of tenant %s printed %d bytes today (UTC), of at most %d",
}

// advice says when there is room again without a time for it.
var advice = [resources]string{
	Runners:       "try again when a runner is released or a waiting claim ends",
	Waiting:       "try again when one has a runner, or gave up",
	Executions:    "try again when one has ended",
	Subscriptions: "close one, then try again",
}

// exceeded returns the error of a quota that is used up. The caller holds mu.
func (a *account) exceeded(r Resource, used int64, after time.Duration) error {
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
	pending := int64(0)
	if r == Runners && a.pending > 0 {
		pending = a.pending
		message += fmt.Sprintf(", and %d of its claims wait for one each", pending)
	}
	e := runtime.Errorf(runtime.CodeQuotaExceeded, "%s: %s", message, then)
	e.Exceeded = &runtime.Exceeded{Quota: r.String(), Limit: limit, Used: used, Pending: pending, RetryAfter: after}
	return e
}

// inWords returns d, rounded up so that it isn't too short: to seconds, or to milliseconds below one.
func inWords(d time.Duration) string {
	unit := time.Second
	if d < time.Second {
		unit = time.Millisecond
	}
	return fmt.Sprint((d + unit - 1).Truncate(unit))
}
