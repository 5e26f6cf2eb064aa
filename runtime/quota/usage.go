package quota

import "github.com/rockpool/rockpool/runtime"

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
	Limit *int64 // nil: none
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
