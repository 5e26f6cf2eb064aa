package driver

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

// Hooks returns the runner's hooks, in the order in which they start.
func (d *Driver) Hooks() []taskrunner.Hook {
	return []taskrunner.Hook{&placeHook{d}, &rootHook{d}, d.Network, &agentHook{d}, &warmHook{d}, &countHook{d}}
}

// slotValue is the name of the value that holds the number of a runner's range of user ids.
const slotValue = "slot"

// Place allocates the runner's directory and range of user ids. Its result is for Start and
// Unplace.
func (d *Driver) Place() (taskrunner.Values, error) {
	slot, err := d.Host.AcquirePlace(d.ID)
	if err != nil || d.Host.Direct == nil { // a listening helper manages the ranges
		return nil, err
	}
	return taskrunner.Values{slotValue: strconv.Itoa(slot)}, nil
}

// Unplace releases the runner's directory and user ids.
func (d *Driver) Unplace(values taskrunner.Values) error {
	if slot, err := strconv.Atoi(values[slotValue]); err == nil {
		return d.Host.ReleasePlace(d.ID, slot)
	}
	return d.Host.ReleasePlace(d.ID) // a server died before it recorded the range
}

// A placeHook allocates a runner's directory and user ids, and releases them at its end.
type placeHook struct{ d *Driver }

func (h *placeHook) Name() string { return "place" }

// Prestart implements taskrunner.Prestarter.
func (h *placeHook) Prestart(_ context.Context, _ taskrunner.PrestartRequest, response *taskrunner.PrestartResponse) (err error) {
	response.Values, err = h.d.Place()
	return err
}

// Stop implements taskrunner.Stopper.
func (h *placeHook) Stop(_ context.Context, request taskrunner.StopRequest) error {
	return h.d.Unplace(request.Values)
}

// A rootHook ensures that the root directory for sandboxes exists. It was made at the server's
// start, unless the disk was full then. An image was unpacked before runners were requested.
type rootHook struct{ d *Driver }

func (h *rootHook) Name() string { return "root" }

// Prestart implements taskrunner.Prestarter. If the image is missing, it is pulled again, and a
// later attempt to start can find it.
func (h *rootHook) Prestart(ctx context.Context, _ taskrunner.PrestartRequest, _ *taskrunner.PrestartResponse) error {
	env := h.d.Environment
	if err := sandbox.Supported(env); err != nil { // it may have become unsupported since it was put
		return &taskrunner.Failure{Message: err.Error(), Unrecoverable: true, Err: err}
	}
	if err := h.d.Host.BuildRoot(ctx); err != nil {
		return host.Explained(err)
	}
	if env.Pin.Digest == "" {
		return nil
	}
	if _, err := h.d.Images.Root(env.Pin.Digest); err != nil {
		h.d.Images.Want(env.Image, env.Pin.Digest)
		return &taskrunner.Failure{Message: "its image is missing and is being pulled again", Err: err}
	}
	return nil
}

// An agentHook checks that a runner's agent answers; else the runner is unusable.
type agentHook struct{ d *Driver }

// Bounds of the wait for an agent's answer. A new agent may wait for CPU on a busy machine. One
// that ran all the time needs less, and delays the server's start.
const (
	answerWithin      = 10 * time.Second
	answerAgainWithin = 5 * time.Second
)

func (h *agentHook) Name() string { return "agent" }

// Poststart implements taskrunner.Poststarter.
func (h *agentHook) Poststart(ctx context.Context, request taskrunner.PoststartRequest, response *taskrunner.PoststartResponse) error {
	within := answerWithin
	if request.Restored {
		within = answerAgainWithin
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := h.d.Ping(ctx); err != nil {
		message := "its agent ended immediately or didn't answer; the server's log says more"
		if errors.Is(err, context.DeadlineExceeded) {
			message = "its agent wasn't ready in time: the machine is too busy, or its CPU limit too low"
		}
		response.Unusable = &taskrunner.Failure{Message: message, Err: fmt.Errorf("ping its agent: %w", err)}
	}
	return nil
}

// Ping connects to the runner's agent, and returns nil once it answers.
func (d *Driver) Ping(ctx context.Context) error {
	conn, err := d.Host.Dial(ctx, d.ID)
	if err != nil {
		return err
	}
	_, err = agent.PingAgent(ctx, conn)
	return err
}

// A countHook determines from the kernel's counters why an agent ended.
type countHook struct{ d *Driver }

func (h *countHook) Name() string { return "count" }

// Exited implements taskrunner.Exiter.
func (h *countHook) Exited(_ context.Context, _ taskrunner.ExitedRequest, response *taskrunner.ExitedResponse) error {
	response.End = &taskrunner.End{Reason: runtime.GoneAgentDied, Message: "the agent ended"}
	last, err := h.d.Counters.Count()
	switch {
	case err != nil:
	case h.d.Counters.Killed(last):
		response.End = &taskrunner.End{Reason: runtime.GoneOutOfMemory, Message: "the kernel killed the agent because the runner's memory was full"}
	case last.OwnKernel && last.ProcessLimitHits > 0: // gVisor's own limit for commands is lower and is met first
		response.End.Message = "its gVisor kernel ended after it had reached the machine's process limit for the sandbox"
	}
	return err
}
