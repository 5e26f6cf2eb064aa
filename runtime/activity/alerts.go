package activity

import (
	"slices"
	"sync"

	"github.com/rockpool/rockpool/runtime"
)

// MostAlerts is how many alerts are remembered of each tenant, and how many Latest returns.
const MostAlerts = 100

// Alerts remember the pool alerts that were raised and resolved: the latest MostAlerts of each
// tenant's environments, so that no tenant's alerts push out another's.
type Alerts struct {
	mu sync.Mutex // guards of
	of map[runtime.TenantID][]alert
}

// An alert keeps the environment of its time. A caller that saw the environment sees the alert.
type alert struct {
	runtime.PoolAlert
	environment runtime.Environment // Tenant and Shared only
}

// Add remembers an alert that was raised or resolved.
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

// Latest returns the latest MostAlerts of environments that the caller sees, the newest first.
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

// Forget forgets a tenant's alerts: another tenant may get its name.
func (a *Alerts) Forget(tenant runtime.TenantID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.of, tenant)
}
