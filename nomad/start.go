package nomad

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
)

// Start implements runtime.Cluster: it returns when the runner's job is
// registered.
func (c *Cluster) Start(ctx context.Context, id runtime.RunnerID, env runtime.Environment, priority runtime.Priority) error {
	if !runnerIDs.MatchString(string(id)) {
		return runtime.Invalid("id", "must be 1 to 64 letters, digits, '_' and '-'")
	}
	if err := c.ready(ctx); err != nil {
		return err
	}
	e := &entry{id: id, recorded: make(chan struct{}), priority: priority, runner: runtime.Runner{
		ID: id, Environment: env, State: runtime.RunnerStarting, CreatedAt: time.Now(), URL: c.ui.job(c.names.runner(id)),
	}}
	c.mu.Lock()
	known := c.entries[id]
	if known == nil {
		c.entries[id] = e
	}
	c.mu.Unlock()
	if known != nil {
		return c.joinStart(ctx, known, priority)
	}
	index, err := c.register(ctx, e, priority)
	c.mu.Lock()
	if err != nil {
		delete(c.entries, id)
	} else {
		c.registered(e, index)
	}
	close(e.recorded)
	c.mu.Unlock()
	if err == nil {
		c.lookSoon()
	}
	return err
}

// registered notes the index of e's job. The caller holds mu.
func (c *Cluster) registered(e *entry, index uint64) {
	e.registered = index
	c.highest = max(c.highest, index)
	c.changed(e)
}

// joinStart waits until another Start of the same runner has registered it, and
// changes the job's priority where that still matters: while it has no place.
func (c *Cluster) joinStart(ctx context.Context, e *entry, priority runtime.Priority) error {
	select {
	case <-e.recorded:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c.mu.Lock()
	there := c.entries[e.id] == e
	matters := there && priority != e.priority && e.runner.State == runtime.RunnerStarting && e.allocation == "" && !e.removing
	if matters {
		e.priority = priority
	}
	c.mu.Unlock()
	switch {
	case !there:
		return runtime.Errorf(runtime.CodeClusterUnavailable, "runner %s could not be registered", e.id)
	case !matters:
		return nil
	}
	index, err := c.register(ctx, e, priority)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.registered(e, index)
	return nil
}

// register registers e's job in its turn, or again with another priority. One
// that a second attempt finds registered was registered by the first.
func (c *Cluster) register(ctx context.Context, e *entry, priority runtime.Priority) (uint64, error) {
	c.mu.Lock()
	env, created := e.runner.Environment, e.runner.CreatedAt
	c.mu.Unlock()
	leave, err := c.gate.Ticket(env.ID, priority).Enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	c.mu.Lock()
	index := e.registered
	c.mu.Unlock()
	template, err := c.templateOf(ctx, env)
	if err != nil {
		return 0, err
	}
	job, err := c.config.runnerJob(template, e.id, env, priority, created)
	if err != nil {
		return 0, err
	}
	_, way, err := readRunner(e.id, job.Meta)
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	e.way = way
	c.mu.Unlock()
	registered := uint64(0)
	err = c.call(ctx, fmt.Sprintf("start runner %s", e.id), func(ctx context.Context) error {
		response, _, err := c.nomad.calls.Jobs().EnforceRegister(job, index, writing(ctx))
		if err == nil {
			registered = response.JobModifyIndex
			return nil
		}
		if !enforced(err) {
			return err
		}
		stored, _, err := c.nomad.calls.Jobs().Info(*job.ID, query(ctx))
		if err == nil && stored.Meta[metaCreated] != job.Meta[metaCreated] {
			return runtime.Errorf(runtime.CodeConflict, "the job %s is there already, and isn't ours", *job.ID)
		}
		if err == nil {
			registered = *stored.JobModifyIndex
		}
		return err
	})
	return registered, err
}

// enforced reports whether a registration was refused because the job isn't at
// the index that was named.
func enforced(err error) bool {
	code, text := status(err)
	return code == http.StatusInternalServerError && strings.Contains(text, api.RegisterEnforceIndexErrPrefix)
}
