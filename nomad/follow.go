package nomad

import (
	"context"
	"strings"

	"github.com/hashicorp/nomad/api"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// topics are what Nomad is asked to tell events of.
var topics = map[api.Topic][]string{
	api.TopicAllocation: {"*"}, api.TopicEvaluation: {"*"}, api.TopicJob: {"*"}, api.TopicNode: {"*"},
}

// Watch gives a first hint for all as soon as it watches, and none for a Mark:
// who marked knows.
func (c *Cluster) Watch(ctx context.Context, hint func(runtime.EnvironmentID)) error {
	return c.changes.Watch(ctx, hint)
}

// follow follows Nomad's events until ctx ends. Each is a hint to look. After a
// break the stream goes on at its last index; since Nomad may not have that any
// more, everything is looked at too.
func (c *Cluster) follow(ctx context.Context) {
	var p pauses
	for index := uint64(0); ctx.Err() == nil; {
		followed, next, err := c.followFrom(ctx, index)
		if next > 0 {
			index = next
		}
		if followed {
			p = pauses{}
		}
		if ctx.Err() == nil {
			c.log.Info("the event stream broke, and is opened again", zap.Error(c.redact(err)))
		}
		if p.wait(ctx) != nil {
			return
		}
	}
}

// followFrom follows events from an index on, 0 for those that come, until the
// stream breaks. It returns whether there was one, and the last index.
func (c *Cluster) followFrom(ctx context.Context, index uint64) (followed bool, last uint64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := c.nomad.events.EventStream().Stream(ctx, topics, index, nil)
	if err != nil {
		return false, 0, err
	}
	c.mu.Lock()
	c.nodesOld = true
	c.mu.Unlock()
	c.lookSoon() // at what happened before
	for batch := range events {
		if batch.Err != nil {
			return true, last, batch.Err
		}
		last = max(last, batch.Index)
		for i := range batch.Events {
			c.hint(&batch.Events[i])
		}
	}
	return true, last, context.Cause(ctx)
}

// hint takes an event as a hint.
func (c *Cluster) hint(event *api.Event) {
	if event.Topic == api.TopicNode {
		c.mu.Lock()
		c.nodesOld = true
		c.mu.Unlock()
		c.lookSoon()
		return
	}
	for _, name := range append(event.FilterKeys, event.Key) {
		if !strings.HasPrefix(name, c.names.runners()) {
			continue
		}
		if event.Topic == api.TopicAllocation {
			c.hintAllocation(name, event.Key)
		}
		c.lookSoon()
		return
	}
}

// hintAllocation has a runner warmed without waiting for a list, in what may be
// its allocation: the next list knows better.
func (c *Cluster) hintAllocation(job, allocation string) {
	id, _ := c.names.runnerOf(job, c.names.runners())
	c.mu.Lock()
	e := c.entries[id]
	fresh := e != nil && e.allocation == "" && e.ready == nil
	if fresh {
		e.allocation = allocation
	}
	c.mu.Unlock()
	if fresh {
		c.warm(e)
	}
}
