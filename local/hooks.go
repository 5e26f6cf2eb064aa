package local

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/local/host"
	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime"
)

// A placeHook gives a runner its directory and its range of user ids.
type placeHook struct {
	c *Cluster
	e *entry
}

// slotValue is the number of the range.
const slotValue = "slot"

func (h *placeHook) Name() string { return "place" }

func (h *placeHook) Prestart(_ context.Context, _ taskrunner.PrestartRequest, response *taskrunner.PrestartResponse) error {
	slot, err := h.c.host.TakePlace(h.e.id)
	if err == nil && h.c.host.Direct != nil { // else the helper has the ranges
		response.Values = taskrunner.Values{slotValue: strconv.Itoa(slot)}
	}
	return err
}

// Stop gives them back.
func (h *placeHook) Stop(_ context.Context, request taskrunner.StopRequest) error {
	if slot, err := strconv.Atoi(request.Values[slotValue]); err == nil {
		return h.c.host.GivePlace(h.e.id, slot)
	}
	return h.c.host.GivePlace(h.e.id) // a server died before it had recorded which
}

// A rootHook ensures the directory that sandboxes are made around. It is there
// since the server's start, unless the disk was full then; an image is there
// before runners are asked for.
type rootHook struct {
	c *Cluster
	e *entry
}

func (h *rootHook) Name() string { return "root" }

func (h *rootHook) Prestart(ctx context.Context, _ taskrunner.PrestartRequest, _ *taskrunner.PrestartResponse) error {
	h.c.mu.Lock()
	env := h.e.runner.Environment
	h.c.mu.Unlock()
	if err := sandbox.Supported(env); err != nil { // any more, since it was put
		return &taskrunner.Failure{Message: err.Error(), Unrecoverable: true, Err: err}
	}
	if err := h.c.host.BuildRoot(ctx); err != nil {
		return host.Explained(err)
	}
	if env.Pin.Digest == "" {
		return nil
	}
	if _, err := h.c.images.Root(env.Pin.Digest); err != nil {
		h.c.wantImage(env)
		return &taskrunner.Failure{Message: "its image isn't here any more, and is pulled again", Err: err}
	}
	return nil
}

// An agentHook finds out whether a runner's agent answers: without it the
// runner is of no use.
type agentHook struct {
	c *Cluster
	e *entry
}

// Bounds of what an agent's answer is waited for: a new one may wait for its
// turn on a busy machine, one that ran all the time holds up the server's start.
const (
	answerWithin      = 10 * time.Second
	answerAgainWithin = 5 * time.Second
)

func (h *agentHook) Name() string { return "agent" }

func (h *agentHook) Poststart(ctx context.Context, request taskrunner.PoststartRequest, response *taskrunner.PoststartResponse) error {
	within := answerWithin
	if request.Restored {
		within = answerAgainWithin
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := h.c.ping(ctx, h.e.id); err != nil {
		message := "its agent ended at once, or didn't answer; the server's log says more"
		if errors.Is(err, context.DeadlineExceeded) {
			message = "its agent wasn't ready in time: the machine is too busy, or its CPU limit too low"
		}
		response.Unusable = &taskrunner.Failure{Message: message, Err: fmt.Errorf("its agent didn't answer: %w", err)}
	}
	return nil
}

func (c *Cluster) ping(ctx context.Context, id runtime.RunnerID) error {
	conn, err := c.host.Dial(ctx, id)
	if err != nil {
		return err
	}
	_, err = agent.PingAgent(ctx, conn)
	return err
}

// A countHook tells from what the kernel counted why an agent ended.
type countHook struct {
	c *Cluster
	e *entry
}

func (h *countHook) Name() string { return "count" }

func (h *countHook) Exited(_ context.Context, _ taskrunner.ExitedRequest, response *taskrunner.ExitedResponse) error {
	response.End = &taskrunner.End{Reason: runtime.GoneAgentDied, Message: "the agent ended"}
	last, err := h.e.counters.Count()
	switch {
	case err != nil:
	case h.e.counters.Killed(last):
		response.End = &taskrunner.End{Reason: runtime.GoneOutOfMemory, Message: "the kernel killed the agent because the runner's memory was full"}
	case last.OwnKernel && last.ProcessLimitHits > 0: // the commands' own limit is that kernel's, and met before
		response.End.Message = "its kernel ended, after the machine's limit of processes around it was met"
	}
	return err
}
