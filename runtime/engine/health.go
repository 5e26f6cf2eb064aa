package engine

import (
	"cmp"
	"context"
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
	if _, err := e.cluster.Environments(ctx); err != nil {
		e.setHealth("cluster", HealthDown, err.Error())
	} else {
		e.setHealth("cluster", HealthOK, "")
	}
	if err := e.store.Check(ctx); err != nil {
		e.setHealth("store", HealthDown, err.Error())
	} else {
		e.setHealth("store", HealthOK, "")
	}
	for _, env := range e.Environments() {
		status, _ := e.PoolStatus(env.ID)
		verdict := HealthOK
		if status.Reason != "" {
			verdict = HealthDegraded
		}
		e.setHealth(poolComponent+string(env.ID), verdict, status.Reason)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	health := Health{Status: HealthOK}
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
