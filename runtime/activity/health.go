// Package activity says what a server does. It has the state of its components, counters since its
// start, the failures of the last minute, and the pool alerts that were raised and resolved. All of it is
// in bounded memory, and starts empty with the server. Its types are safe for concurrent use.
package activity

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/health"
	"github.com/rockpool/rockpool/runtime/logdir"
)

// PoolComponent is the prefix of the names of pools among the components.
const PoolComponent = "pool "

const healthWithin = 5 * time.Second

// A Health is the state of the server and of its components.
type Health struct {
	Status     HealthStatus // the worst of the components
	Components []ComponentHealth
	Attacks    *health.AttackRun // record of the last attack run on this machine; nil means none
}

// ComponentHealth is the state of one component, since when, and why.
type ComponentHealth struct {
	Name    string // "cluster", "store", "restore", "output", "orphaned output", "retention", "audit log", "attacks", "pool ID"
	Status  HealthStatus
	Since   time.Time
	Message string
}

// HealthStatus is a state.
type HealthStatus string

// The states, from good to bad.
const (
	HealthOK       HealthStatus = "OK"
	HealthDegraded HealthStatus = "DEGRADED"
	HealthDown     HealthStatus = "DOWN"
)

// Or returns the worse of two states. The empty state is better than all others.
func (s HealthStatus) Or(other HealthStatus) HealthStatus {
	order := []HealthStatus{HealthOK, HealthDegraded, HealthDown}
	if slices.Index(order, other) > slices.Index(order, s) {
		return other
	}
	return s
}

// Sources are what a Monitor inspects.
type Sources struct {
	Cluster func(ctx context.Context) (runtime.ClusterStatus, error)
	Store   func(ctx context.Context) error
	Logs    *logdir.Dir
	Skipped func() []string          // what could not be restored
	Pools   func() []ComponentHealth // one of each environment

	// Attacks returns the record of the last attack run on this machine, or nil if there was none.
	// May be nil.
	Attacks func() (*health.AttackRun, error)
	// Audit returns the audit log's fault, or nil if it works. It is nil if there is no audit log.
	Audit func() error
}

// A Monitor inspects the components, and remembers the state of each and since when it has been in it.
type Monitor struct {
	sources Sources

	mu       sync.Mutex // guards the fields below
	parts    map[string]ComponentHealth
	attacks  *health.AttackRun // last record read
	begun    int64             // number of inspections begun
	answered int64             // inspection that parts and attacks are from
}

// NewMonitor returns a Monitor that has inspected nothing yet.
func NewMonitor(sources Sources) *Monitor {
	return &Monitor{sources: sources, parts: map[string]ComponentHealth{}}
}

// answer returns the state of the server with what an inspection found, and stores it if keep is
// set. If a later inspection has answered already, its result is used instead. Components without
// a Status are left out, and so are pools that the inspection didn't find.
func (m *Monitor) answer(inspection int64, found []ComponentHealth, attacks *health.AttackRun, keep bool) Health {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if inspection < m.answered {
		found, attacks = nil, m.attacks
	}
	all := maps.Clone(m.parts)
	if inspection >= m.answered { // found has all pools
		maps.DeleteFunc(all, func(name string, _ ComponentHealth) bool { return strings.HasPrefix(name, PoolComponent) })
	}
	// A component that keeps its state keeps its Since.
	for _, c := range found {
		if c.Since = now; m.parts[c.Name].Status == c.Status {
			c.Since = m.parts[c.Name].Since
		}
		all[c.Name] = c
	}
	maps.DeleteFunc(all, func(_ string, c ComponentHealth) bool { return c.Status == "" })
	if keep {
		m.parts, m.attacks, m.answered = all, attacks, max(m.answered, inspection)
	}
	health := Health{Status: HealthOK, Attacks: attacks}
	for _, c := range all {
		health.Components = append(health.Components, c)
		health.Status = health.Status.Or(c.Status)
	}
	slices.SortFunc(health.Components, func(a, b ComponentHealth) int { return cmp.Compare(a.Name, b.Name) })
	return health
}

// Health returns the state of the server and of its components. If ctx ends early, the result isn't
// stored, because a cancelled check says nothing about a component. The result of an inspection
// is also dropped if a later one has answered already.
func (m *Monitor) Health(ctx context.Context) Health {
	m.mu.Lock()
	m.begun++
	inspection, attacks := m.begun, m.attacks
	m.mu.Unlock()
	found, attacks := m.inspect(ctx, attacks)
	return m.answer(inspection, found, attacks, ctx.Err() == nil)
}

// inspect returns the state of the components that must be checked actively. A component without a
// Status doesn't exist. attacks is the last known record.
func (m *Monitor) inspect(ctx context.Context, attacks *health.AttackRun) ([]ComponentHealth, *health.AttackRun) {
	ctx, cancel := context.WithTimeout(ctx, healthWithin)
	defer cancel()
	cluster, store := ComponentHealth{Name: "cluster"}, ComponentHealth{Name: "store", Status: HealthOK}
	output := ComponentHealth{Name: "output", Status: HealthOK}
	var checks sync.WaitGroup // concurrent, so that a hanging one doesn't delay the others
	checks.Go(func() { cluster.Status, cluster.Message = m.clusterHealth(ctx) })
	checks.Go(func() {
		if err := m.sources.Store(ctx); err != nil {
			store.Status, store.Message = HealthDown, err.Error()
		}
	})
	var fault logdir.Fault
	checks.Go(func() { fault = m.sources.Logs.Check(ctx) })
	checks.Wait()
	switch {
	case fault.Down:
		output.Status = HealthDown
	case fault.Message != "":
		output.Status = HealthDegraded
	}
	output.Message = fault.Message
	found := []ComponentHealth{cluster, store, output}

	if !fault.Stalls { // these would hang; their last results stay
		orphaned := ComponentHealth{Name: "orphaned output"}
		if orphaned.Message = m.sources.Logs.Orphaned(); orphaned.Message != "" {
			orphaned.Status = HealthDegraded
		}
		var attacked ComponentHealth
		attacks, attacked = m.lastAttacks()
		found = append(found, orphaned, attacked)
	}
	restore := ComponentHealth{Name: "restore", Status: HealthOK}
	if skipped := m.sources.Skipped(); len(skipped) > 0 {
		restore.Status, restore.Message = HealthDegraded, fmt.Sprintf("%d records skipped; the first: %s", len(skipped), skipped[0])
	}
	found = append(found, restore)
	if m.sources.Audit != nil {
		log := ComponentHealth{Name: "audit log", Status: HealthOK}
		if err := m.sources.Audit(); err != nil {
			log.Status, log.Message = HealthDegraded, err.Error()
		}
		found = append(found, log)
	}
	return append(found, m.sources.Pools()...), attacks
}

func (m *Monitor) clusterHealth(ctx context.Context) (HealthStatus, string) {
	status, err := m.sources.Cluster(ctx)
	switch {
	case err != nil:
		return HealthDown, err.Error()
	case len(status.Problems) > 0:
		return HealthDegraded, describe(status.Problems)
	default:
		return HealthOK, status.Remark
	}
}

// lastAttacks returns the record of the last attack run. Without one there is no component.
func (m *Monitor) lastAttacks() (*health.AttackRun, ComponentHealth) {
	c := ComponentHealth{Name: "attacks"}
	if m.sources.Attacks == nil {
		return nil, c
	}
	last, err := m.sources.Attacks()
	switch {
	case err != nil:
		c.Status, c.Message = HealthDegraded, err.Error()
	case last == nil:
	case last.Held < last.Tried || last.Tried == 0:
		c.Status = HealthDegraded
		c.Message = fmt.Sprintf("%d of %d attacks were blocked on %s with isolation %s; not blocked: %s", last.Held, last.Tried, last.At.Format(time.DateOnly), last.Isolation, strings.Join(last.Failed, ", "))
	default:
		c.Status, c.Message = HealthOK, fmt.Sprintf("all %d attacks were blocked on %s with isolation %s", last.Tried, last.At.Format(time.DateOnly), last.Isolation)
	}
	return last, c
}

// describe describes a cluster's problems in words, at most five of them.
func describe(problems []runtime.Problem) string {
	const most = 5
	var all []string
	for _, p := range problems[:min(len(problems), most)] {
		all = append(all, p.Subject+": "+p.Message)
	}
	if more := len(problems) - most; more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}

// RetentionFails records that finished executions can't be removed; with nil, that they can again.
func (m *Monitor) RetentionFails(err error) {
	next := ComponentHealth{Name: "retention", Status: HealthOK}
	if err != nil {
		next.Status, next.Message = HealthDegraded, "retention can't remove finished executions: "+err.Error()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if next.Since = m.parts[next.Name].Since; m.parts[next.Name].Status != next.Status {
		next.Since = time.Now()
	}
	m.parts[next.Name] = next
}
