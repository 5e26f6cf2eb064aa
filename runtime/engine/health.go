package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// poolComponent begins the names of the pools' components.
const poolComponent = "pool "

// Health returns the state of the whole and of its parts.
func (e *Engine) Health(ctx context.Context) Health {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if status, err := e.cluster.Status(ctx); err != nil {
		e.setHealth("cluster", HealthDown, err.Error())
	} else if len(status.Problems) > 0 {
		e.setHealth("cluster", HealthDegraded, told(status.Problems))
	} else {
		e.setHealth("cluster", HealthOK, status.Remark)
	}
	if err := e.store.Check(ctx); err != nil {
		e.setHealth("store", HealthDown, err.Error())
	} else {
		e.setHealth("store", HealthOK, "")
	}
	status, message := e.outputHealth(ctx)
	e.setHealth("output", status, message)
	if found := e.orphans.found(e.store.Fresh()); found != "" {
		e.setHealth(orphanedComponent, HealthDegraded, found)
	} else {
		e.forgetHealth(orphanedComponent)
	}
	if skipped := e.skipped(); len(skipped) > 0 {
		e.setHealth("restore", HealthDegraded, fmt.Sprintf("%d skipped; the first: %s", len(skipped), skipped[0]))
	} else {
		e.setHealth("restore", HealthOK, "")
	}
	attacks := e.lastAttacks()
	for _, env := range e.Environments() {
		status, _ := e.PoolStatus(env.ID)
		verdict, message := HealthOK, status.Reason
		if alert := e.poolAlert(env.ID); alert.Standing() {
			message = fmt.Sprintf("%d of %d runners are idle: %s", alert.Idle, alert.Size, alert.Reason)
		}
		if message != "" {
			verdict = HealthDegraded
		}
		e.setHealth(poolComponent+string(env.ID), verdict, message)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	health := Health{Status: HealthOK, Attacks: attacks}
	for name, c := range e.health {
		if id, ok := strings.CutPrefix(name, poolComponent); ok {
			if _, exists := e.environments[runtime.EnvironmentID(id)]; !exists {
				delete(e.health, name)
				continue
			}
		}
		health.Components = append(health.Components, c)
		if c.Status.worseThan(health.Status) {
			health.Status = c.Status
		}
	}
	slices.SortFunc(health.Components, func(a, b ComponentHealth) int { return cmp.Compare(a.Name, b.Name) })
	return health
}

// lastAttacks notes what came of the last attacks. That there were none is no
// fault, and no part either.
func (e *Engine) lastAttacks() *Attacks {
	const name = "attacks"
	if e.attacks == nil {
		return nil
	}
	last, err := e.attacks()
	switch {
	case err != nil:
		e.setHealth(name, HealthDegraded, err.Error())
	case last == nil:
		e.forgetHealth(name)
	case last.Held < last.Tried || last.Tried == 0:
		e.setHealth(name, HealthDegraded, fmt.Sprintf("%d of %d were held off on %s, in isolation %s; not: %s", last.Held, last.Tried, last.At.Format(time.DateOnly), last.Isolation, strings.Join(last.Failed, ", ")))
	default:
		e.setHealth(name, HealthOK, fmt.Sprintf("all %d were held off on %s, in isolation %s", last.Tried, last.At.Format(time.DateOnly), last.Isolation))
	}
	return last
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

// forgetHealth forgets a component that isn't there.
func (e *Engine) forgetHealth(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.health, name)
}

func (s HealthStatus) worseThan(other HealthStatus) bool {
	order := []HealthStatus{HealthOK, HealthDegraded, HealthDown}
	return slices.Index(order, s) > slices.Index(order, other)
}
