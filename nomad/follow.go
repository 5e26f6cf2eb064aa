package nomad

import (
	"context"
	"strings"

	"github.com/hashicorp/nomad/api"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/runtime"
)

var topics = map[api.Topic][]string{
	api.TopicAllocation: {"*"}, api.TopicEvaluation: {"*"}, api.TopicJob: {"*"}, api.TopicNode: {"*"},
}

// follow follows Nomad's events until ctx ends. Each is a hint to refresh. When the stream breaks
// it is opened again at its last index. Nomad may no longer have the events since then, so a
// refresh follows, too.
func (c *Cluster) follow(ctx context.Context) {
	p := connection.Backoff()
	for index := uint64(0); ctx.Err() == nil; {
		followed, next, err := c.followFrom(ctx, index)
		if next > 0 {
			index = next
		}
		if followed {
			p.Reset()
		}
		if ctx.Err() == nil {
			c.config.Logger.Info("Nomad's event stream broke; opening it again", zap.Error(c.nomad.Redact(err)))
		}
		if p.Wait(ctx) != nil {
			return
		}
	}
}

// followFrom follows new events, or those from an index, and returns the last index.
func (c *Cluster) followFrom(ctx context.Context, index uint64) (followed bool, last uint64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := c.nomad.Events(ctx, topics, index)
	if err != nil {
		return false, 0, err
	}
	c.nodes.Outdate()
	c.refresher.soon() // for changes before the stream was open
	c.others.Send("")
	for batch := range events {
		if batch.Err != nil {
			return true, last, batch.Err
		}
		// The next stream begins here, so a broken one loses no event that Nomad still has.
		last = max(last, batch.Index)
		for i := range batch.Events {
			c.hint(&batch.Events[i])
		}
	}
	return true, last, context.Cause(ctx)
}

func (c *Cluster) hint(event *api.Event) {
	if event.Topic == api.TopicNode {
		c.nodes.Outdate()
		c.refresher.soon()
		return
	}
	if event.Topic == api.TopicJob && strings.HasPrefix(event.Key, c.names().Environments()) {
		c.others.Send("")
		return
	}
	// The id of the job is in the event's key or in its filter keys, depending on the topic.
	for _, name := range append(event.FilterKeys, event.Key) {
		if !strings.HasPrefix(name, c.names().Runners()) {
			continue
		}
		if event.Topic == api.TopicAllocation {
			c.hintAllocation(name, event.Key)
		}
		c.refresher.soon()
		return
	}
}

// WatchEnvironments implements environments.EnvironmentWatcher. Other programs can change environments by
// registering jobs. Changes for which Nomad sends no event are found by the next periodic refresh.
func (c *Cluster) WatchEnvironments(ctx context.Context, hint func()) error {
	return c.others.Watch(ctx, func(runtime.EnvironmentID) { hint() })
}

// hintAllocation awaits an agent in what is probably its allocation, before a list confirms that.
func (c *Cluster) hintAllocation(job, allocation string) {
	id, _ := c.names().RunnerOf(job)
	c.runners.mu.Lock()
	defer c.runners.mu.Unlock()
	// A list corrects a wrong guess later.
	if e := c.runners.entries[id]; e != nil && e.allocation == "" && e.ready == nil {
		e.allocation = allocation
		c.awaitAgent(e)
	}
}
