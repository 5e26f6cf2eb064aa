package engine

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

// healthWithin bounds how long Health waits for the cluster.
const healthWithin = 5 * time.Second

// A Health is the state of the server and of its components.
type Health struct {
	Status     HealthStatus // the worst of the components
	Components []ComponentHealth
	Attacks    *health.AttackRun // record of the last attack run on this machine; nil: none
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

// worseThan reports whether s is worse than other. The empty state is better than all others.
func (s HealthStatus) worseThan(other HealthStatus) bool {
	order := []HealthStatus{HealthOK, HealthDegraded, HealthDown}
	return slices.Index(order, s) > slices.Index(order, other)
}

// Or returns the worse of two states.
func (s HealthStatus) Or(other HealthStatus) HealthStatus {
	if other.worseThan(s) {
		return other
	}
	return s
}

// A healthBook remembers the state of each component, and since when it has been in it.
type healthBook struct {
	readAttacks  func() (*health.AttackRun, error) // nil: unknown
	auditProblem func() error                      // nil: there is no audit log

	mu       sync.Mutex // guards the fields below
	parts    map[string]ComponentHealth
	attacks  *health.AttackRun // last record read
	begun    int64             // number of inspections begun
	answered int64             // inspection that parts and attacks are from
}

// note records a component's state.
func (b *healthBook) note(name string, status HealthStatus, message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.parts[name]
	if c.Status != status {
		c.Since = time.Now()
	}
	c.Name, c.Status, c.Message = name, status, message
	b.parts[name] = c
}

// begin begins an inspection. It returns its number and the last known attack record.
func (b *healthBook) begin() (inspection int64, attacks *health.AttackRun) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun++
	return b.begun, b.attacks
}

// answer returns the state of the server with what an inspection found, and stores it if keep is
// set. If a later inspection has answered already, its result is used instead. Components without
// a Status are left out, and so are pools of environments that don't exist.
func (b *healthBook) answer(inspection int64, found []ComponentHealth, attacks *health.AttackRun, exists map[runtime.EnvironmentID]bool, keep bool) Health {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if inspection < b.answered {
		found, attacks = nil, b.attacks
	}
	all := maps.Clone(b.parts)
	// A component that keeps its state keeps its Since.
	for _, c := range found {
		if c.Since = now; all[c.Name].Status == c.Status {
			c.Since = all[c.Name].Since
		}
		all[c.Name] = c
	}
	maps.DeleteFunc(all, func(name string, c ComponentHealth) bool {
		id, isPool := strings.CutPrefix(name, PoolComponent)
		return c.Status == "" || isPool && !exists[runtime.EnvironmentID(id)]
	})
	if keep {
		b.parts, b.attacks, b.answered = all, attacks, max(b.answered, inspection)
	}
	health := Health{Status: HealthOK, Attacks: attacks}
	for _, c := range all {
		health.Components = append(health.Components, c)
		if c.Status.worseThan(health.Status) {
			health.Status = c.Status
		}
	}
	slices.SortFunc(health.Components, func(a, b ComponentHealth) int { return cmp.Compare(a.Name, b.Name) })
	return health
}

// Health returns the state of the server and of its components. If ctx ends early, the result isn't
// stored, because a cancelled check says nothing about a component. The result of an inspection
// is also dropped if a later one has answered already.
func (e *Engine) Health(ctx context.Context) Health {
	inspection, attacks := e.health.begin()
	found, attacks := e.inspect(ctx, attacks)
	exists := map[runtime.EnvironmentID]bool{}
	for _, env := range e.Environments() {
		exists[env.ID] = true
	}
	return e.health.answer(inspection, found, attacks, exists, ctx.Err() == nil)
}

// inspect returns the state of the components that must be checked actively. A component without a
// Status doesn't exist. attacks is the last known record.
func (e *Engine) inspect(ctx context.Context, attacks *health.AttackRun) ([]ComponentHealth, *health.AttackRun) {
	ctx, cancel := context.WithTimeout(ctx, healthWithin)
	defer cancel()
	cluster, store := ComponentHealth{Name: "cluster"}, ComponentHealth{Name: "store", Status: HealthOK}
	output := ComponentHealth{Name: "output", Status: HealthOK}
	var checks sync.WaitGroup // concurrent, so that a hanging one doesn't delay the others
	checks.Go(func() { cluster.Status, cluster.Message = e.clusterHealth(ctx) })
	checks.Go(func() {
		if err := e.store.Check(ctx); err != nil {
			store.Status, store.Message = HealthDown, err.Error()
		}
	})
	var fault logdir.Fault
	checks.Go(func() { fault = e.logs.Check(ctx) })
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
		if orphaned.Message = e.logs.Orphaned(); orphaned.Message != "" {
			orphaned.Status = HealthDegraded
		}
		var attacked ComponentHealth
		attacks, attacked = e.lastAttacks()
		found = append(found, orphaned, attacked)
	}
	restore := ComponentHealth{Name: "restore", Status: HealthOK}
	if skipped := e.skipped(); len(skipped) > 0 {
		restore.Status, restore.Message = HealthDegraded, fmt.Sprintf("%d records skipped; the first: %s", len(skipped), skipped[0])
	}
	found = append(found, restore)
	if e.health.auditProblem != nil {
		log := ComponentHealth{Name: "audit log", Status: HealthOK}
		if err := e.health.auditProblem(); err != nil {
			log.Status, log.Message = HealthDegraded, err.Error()
		}
		found = append(found, log)
	}
	for _, env := range e.Environments() {
		found = append(found, e.poolHealth(env.ID))
	}
	return found, attacks
}

// clusterHealth returns the cluster's status as that of a component.
func (e *Engine) clusterHealth(ctx context.Context) (HealthStatus, string) {
	status, err := e.cluster.Status(ctx)
	switch {
	case err != nil:
		return HealthDown, err.Error()
	case len(status.Problems) > 0:
		return HealthDegraded, describe(status.Problems)
	default:
		return HealthOK, status.Remark
	}
}

// poolHealth returns a pool's component: degraded while its alert stands or it has a reason for
// missing runners, except while the cluster is being drained.
func (e *Engine) poolHealth(id runtime.EnvironmentID) ComponentHealth {
	status, _ := e.PoolStatus(id)
	c := ComponentHealth{Name: PoolComponent + string(id), Status: HealthOK, Message: status.Reason}
	if alert := e.poolAlert(id); alert.Standing() {
		c.Message = fmt.Sprintf("%d of %d runners are idle: %s", alert.Idle, alert.Size, alert.Reason)
	}
	if c.Message != "" && !e.Draining() { // a draining pool is meant to be empty
		c.Status = HealthDegraded
	}
	return c
}

// lastAttacks returns the record of the last attack run. Without one there is no component.
func (e *Engine) lastAttacks() (*health.AttackRun, ComponentHealth) {
	c := ComponentHealth{Name: "attacks"}
	if e.health.readAttacks == nil {
		return nil, c
	}
	last, err := e.health.readAttacks()
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

// ClusterStatus returns what the cluster is and how much of it is promised to runners.
func (e *Engine) ClusterStatus(ctx context.Context) (runtime.ClusterStatus, error) {
	status, err := e.cluster.Status(ctx)
	if err == nil && status.Draining != nil {
		status.Draining.Executions = e.sessions.len()
	}
	return status, err
}

// retentionFails records that finished executions can't be removed; nil: they can again.
func (e *Engine) retentionFails(err error) {
	if err != nil {
		e.health.note("retention", HealthDegraded, "retention can't remove finished executions: "+err.Error())
		return
	}
	e.health.note("retention", HealthOK, "")
}
