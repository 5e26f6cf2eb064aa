package activity

import (
	"slices"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// MostAlerts bounds the alerts kept of each tenant, and those that Latest returns.
const MostAlerts = 100

// Alerts keeps the raised and resolved pool alerts: the latest MostAlerts of each tenant's
// environments, so that one tenant's alerts don't push out another's.
type Alerts struct {
	mu sync.Mutex // guards of
	of map[runtime.TenantID][]alert
}

// An alert keeps its environment's tenant, so that only callers that saw the environment see it.
type alert struct {
	runtime.PoolAlert
	environment runtime.Environment // Tenant and Shared only
}

// Add records an alert that was raised or resolved.
func (a *Alerts) Add(env runtime.Environment, raised runtime.PoolAlert) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = map[runtime.TenantID][]alert{}
	}
	all := a.of[env.Tenant]
	if len(all) == MostAlerts {
		all = slices.Delete(all, 0, 1)
	}
	a.of[env.Tenant] = append(all, alert{raised, runtime.Environment{Tenant: env.Tenant, Shared: env.Shared}})
}

// Latest returns the latest MostAlerts alerts of environments that the caller sees, newest first.
func (a *Alerts) Latest(sees func(runtime.Environment) bool) []runtime.PoolAlert {
	latest := []runtime.PoolAlert{}
	a.mu.Lock()
	for _, all := range a.of {
		for _, alert := range all {
			if sees(alert.environment) {
				latest = append(latest, alert.PoolAlert)
			}
		}
	}
	a.mu.Unlock()
	slices.SortStableFunc(latest, func(a, b runtime.PoolAlert) int { return b.Since.Compare(a.Since) })
	return latest[:min(len(latest), MostAlerts)]
}

// Forget removes a tenant's alerts, because a new tenant may get its name.
func (a *Alerts) Forget(tenant runtime.TenantID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.of, tenant)
}

// Failures count the executions that failed in the last minute.
type Failures struct {
	mu      sync.Mutex   // guards seconds
	seconds [60]failures // by the second modulo 60
}

type failures struct {
	second int64
	of     map[runtime.TenantID]int
}

// Ended counts an execution that ended if it failed.
func (f *Failures) Ended(now time.Time, x runtime.Execution) {
	if !x.Failed() {
		return
	}
	second := now.Unix()
	f.mu.Lock()
	defer f.mu.Unlock()
	at := &f.seconds[second%int64(len(f.seconds))]
	// The slot still has the failures of an earlier minute.
	if at.second != second {
		*at = failures{second, map[runtime.TenantID]int{}}
	}
	at.of[x.Tenant]++
}

// Count returns how many executions failed in the minute before now, of tenants that the caller sees.
func (f *Failures) Count(now time.Time, sees func(runtime.TenantID) bool) int {
	first := now.Unix() - int64(len(f.seconds)) + 1
	f.mu.Lock()
	defer f.mu.Unlock()
	sum := 0
	for _, at := range f.seconds {
		if at.second < first {
			continue
		}
		for tenant, n := range at.of {
			if sees(tenant) {
				sum += n
			}
		}
	}
	return sum
}

// Forget removes a tenant's failures, because a new tenant may get its name.
func (f *Failures) Forget(tenant runtime.TenantID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, at := range f.seconds {
		delete(at.of, tenant)
	}
}
