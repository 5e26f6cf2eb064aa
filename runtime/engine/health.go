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
)

// poolComponent begins the names of the pools' components.
const poolComponent = "pool "

// healthWithin is how long Health waits for the cluster.
const healthWithin = 5 * time.Second

// Health returns the state of the whole and of its parts. Where ctx ends first, the
// answer isn't kept: a caller that left says nothing of the parts. Neither is what was
// found by an inspection that began before another one that has answered already.
func (e *Engine) Health(ctx context.Context) Health {
	e.mu.Lock()
	e.inspections++
	inspection, attacks := e.inspections, e.attacked
	e.mu.Unlock()
	found, attacks := e.inspect(ctx, attacks)
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if inspection < e.inspected {
		found, attacks = nil, e.attacked
	}
	all := maps.Clone(e.health)
	for _, c := range found {
		if c.Since = now; all[c.Name].Status == c.Status {
			c.Since = all[c.Name].Since
		}
		all[c.Name] = c
	}
	maps.DeleteFunc(all, func(name string, c ComponentHealth) bool {
		id, isPool := strings.CutPrefix(name, poolComponent)
		_, exists := e.environments[runtime.EnvironmentID(id)]
		return c.Status == "" || isPool && !exists
	})
	if ctx.Err() == nil {
		e.health, e.attacked, e.inspected = all, attacks, max(e.inspected, inspection)
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

// inspect returns the state of the parts that say it only when they are asked. One
// without a Status isn't there. attacks are the last that are known.
func (e *Engine) inspect(ctx context.Context, attacks *Attacks) ([]ComponentHealth, *Attacks) {
	ctx, cancel := context.WithTimeout(ctx, healthWithin)
	defer cancel()
	cluster, store := ComponentHealth{Name: "cluster"}, ComponentHealth{Name: "store", Status: HealthOK}
	output := ComponentHealth{Name: "output"}
	var checks sync.WaitGroup // at once: one that hangs takes no time from the others
	checks.Go(func() { cluster.Status, cluster.Message = e.clusterHealth(ctx) })
	checks.Go(func() {
		if err := e.store.Check(ctx); err != nil {
			store.Status, store.Message = HealthDown, err.Error()
		}
	})
	stalls := false
	checks.Go(func() { output.Status, output.Message, stalls = e.outputHealth(ctx) })
	checks.Wait()
	found := []ComponentHealth{cluster, store, output}

	if !stalls { // else they would hang; what was found the last time stays
		orphaned := ComponentHealth{Name: orphanedComponent}
		if orphaned.Message = e.orphans.found(e.store.Fresh()); orphaned.Message != "" {
			orphaned.Status = HealthDegraded
		}
		var attacked ComponentHealth
		attacks, attacked = e.lastAttacks()
		found = append(found, orphaned, attacked)
	}
	restore := ComponentHealth{Name: "restore", Status: HealthOK}
	if skipped := e.skipped(); len(skipped) > 0 {
		restore.Status, restore.Message = HealthDegraded, fmt.Sprintf("%d skipped; the first: %s", len(skipped), skipped[0])
	}
	found = append(found, restore)
	for _, env := range e.Environments() {
		found = append(found, e.poolHealth(env.ID))
	}
	return found, attacks
}

func (e *Engine) clusterHealth(ctx context.Context) (HealthStatus, string) {
	status, err := e.cluster.Status(ctx)
	switch {
	case err != nil:
		return HealthDown, err.Error()
	case len(status.Problems) > 0:
		return HealthDegraded, told(status.Problems)
	default:
		return HealthOK, status.Remark
	}
}

func (e *Engine) poolHealth(id runtime.EnvironmentID) ComponentHealth {
	status, _ := e.PoolStatus(id)
	c := ComponentHealth{Name: poolComponent + string(id), Status: HealthOK, Message: status.Reason}
	if alert := e.poolAlert(id); alert.Standing() {
		c.Message = fmt.Sprintf("%d of %d runners are idle: %s", alert.Idle, alert.Size, alert.Reason)
	}
	if c.Message != "" {
		c.Status = HealthDegraded
	}
	return c
}

// lastAttacks returns what came of the last attacks. That there were none is no
// fault, and no part either.
func (e *Engine) lastAttacks() (*Attacks, ComponentHealth) {
	c := ComponentHealth{Name: "attacks"}
	if e.attacks == nil {
		return nil, c
	}
	last, err := e.attacks()
	switch {
	case err != nil:
		c.Status, c.Message = HealthDegraded, err.Error()
	case last == nil:
	case last.Held < last.Tried || last.Tried == 0:
		c.Status = HealthDegraded
		c.Message = fmt.Sprintf("%d of %d were held off on %s, in isolation %s; not: %s", last.Held, last.Tried, last.At.Format(time.DateOnly), last.Isolation, strings.Join(last.Failed, ", "))
	default:
		c.Status, c.Message = HealthOK, fmt.Sprintf("all %d were held off on %s, in isolation %s", last.Tried, last.At.Format(time.DateOnly), last.Isolation)
	}
	return last, c
}

// told puts a cluster's problems into words, the first few of them.
func told(problems []runtime.Problem) string {
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

// ClusterStatus returns what the cluster is and how much of it is taken.
func (e *Engine) ClusterStatus(ctx context.Context) (runtime.ClusterStatus, error) {
	status, err := e.cluster.Status(ctx)
	if err == nil && status.Draining != nil {
		e.mu.Lock()
		status.Draining.Executions = len(e.sessions)
		e.mu.Unlock()
	}
	return status, err
}

// setHealth notes a component's state, and since when it is so.
func (e *Engine) setHealth(name string, status HealthStatus, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.health[name]
	if c.Status != status {
		c.Since = time.Now()
	}
	c.Name, c.Status, c.Message = name, status, message
	e.health[name] = c
}

func (s HealthStatus) worseThan(other HealthStatus) bool {
	order := []HealthStatus{HealthOK, HealthDegraded, HealthDown}
	return slices.Index(order, s) > slices.Index(order, other)
}
