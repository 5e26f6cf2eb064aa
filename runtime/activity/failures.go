// Package activity keeps recent events in bounded memory: how many executions failed in the last
// minute, and which pool alerts were raised and resolved. It starts empty with the server. Its
// types are safe for concurrent use, and their zero values are empty.
package activity

import (
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// Failures count the executions that failed in the last minute.
type Failures struct {
	mu      sync.Mutex   // guards seconds
	seconds [60]failures // by the second modulo 60
}

// failures are the failures of one second.
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
	// The place still has the failures of an earlier minute.
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
