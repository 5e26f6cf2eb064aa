package quota

import (
	"fmt"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// A Resource is something that a tenant acquires and releases.
type Resource int

// The resources.
const (
	Runners       Resource = iota // held runners
	Waiting                       // waiting claims
	Executions                    // unfinished executions
	Subscriptions                 // open subscriptions
	PoolRunners                   // the sizes of its environments' pools
	MemoryMiB                     // what these pools and its held runners reserve
	CPUMHz                        // likewise
	resources
)

// Amounts are numbers of each resource. Those that aren't positive count as 0.
type Amounts [resources]int64

// ReservedBy returns what n runners with these limits reserve.
func ReservedBy(limits runtime.Resources, n int) Amounts {
	return Amounts{MemoryMiB: int64(n) * int64(limits.MemoryMiB), CPUMHz: int64(n) * int64(limits.CPUMHz)}
}

// Minus returns a without b.
func (a Amounts) Minus(b Amounts) Amounts {
	for r := range a {
		a[r] -= b[r]
	}
	return a
}

// The other quotas of runtime.Quotas.
const (
	claims = resources + iota
	cpu
	output
	quotas
)

// String returns the name of the quota, as the API spells it.
func (r Resource) String() string {
	return [quotas]string{"runners", "waiting", "executions", "subscriptions", "poolRunners", "memoryMiB", "cpuMHz", "claimsPerMinute", "cpuSecondsPerDay", "outputBytesPerDay"}[r]
}

// A Usage is what a tenant uses at one moment.
type Usage struct {
	Tenant            runtime.TenantID
	Runners           Amount
	Waiting           Amount
	Executions        Amount
	Subscriptions     Amount
	PoolRunners       Amount
	MemoryMiB         Amount
	CPUMHz            Amount
	ClaimsPerMinute   Amount // within the last 60 seconds
	CPUSecondsPerDay  Amount // of executions that ended today (UTC), rounded down
	OutputBytesPerDay Amount // likewise
}

// An Amount is the use of one quota. It can exceed the limit: see the package comment.
type Amount struct {
	Used  int64
	Limit *int64 // nil means none
}

// limits are the limits of all quotas, or unlimited.
type limits [quotas]int64

const unlimited = -1

// limitsOf returns quotas as limits; a quota that isn't set is unlimited.
func limitsOf(q runtime.Quotas) (all limits) {
	for r, limit := range []*int{Runners: q.Runners, Waiting: q.Waiting, Executions: q.Executions, Subscriptions: q.Subscriptions, PoolRunners: q.PoolRunners, claims: q.ClaimsPerMinute} {
		all[r] = unlimited
		if limit != nil {
			all[r] = max(0, int64(*limit))
		}
	}
	for r, limit := range map[Resource]*int64{MemoryMiB: q.MemoryMiB, CPUMHz: q.CPUMHz, cpu: q.CPUSecondsPerDay, output: q.OutputBytesPerDay} {
		all[r] = unlimited
		if limit != nil {
			all[r] = max(0, *limit)
		}
	}
	return all
}

// reached reports whether used leaves no room for one more.
func (l *limits) reached(r Resource, used int64) bool { return l[r] != unlimited && used >= l[r] }

func (l *limits) amount(r Resource, used int64) Amount {
	if l[r] == unlimited {
		return Amount{Used: used}
	}
	limit := l[r]
	return Amount{Used: used, Limit: &limit}
}

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
