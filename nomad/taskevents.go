package nomad

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
)

// TaskEvents implements runtime.Cluster, from what the last look found.
func (c *Cluster) TaskEvents(ctx context.Context, id runtime.RunnerID) ([]runtime.TaskEvent, error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.happened(id), nil
}

// happened returns what happened to a runner that is there, or was. The caller
// holds mu.
func (c *Cluster) happened(id runtime.RunnerID) []runtime.TaskEvent {
	if e := c.entries[id]; e != nil {
		return e.events()
	}
	gone, _ := c.past.Find(id)
	return gone.Events
}

// events are those that Nomad tells of e's tasks, and those that we know of. The
// caller holds mu.
func (e *entry) events(more ...runtime.TaskEvent) []runtime.TaskEvent {
	all := more
	for _, a := range e.allocations {
		for _, task := range a.TaskStates {
			for _, event := range task.Events {
				all = append(all, toldEvent(event)...)
			}
		}
	}
	if e.ready != nil {
		all = append(all, runtime.TaskEvent{At: e.ready.at, Kind: runtime.TaskReady})
	}
	if e.runner.State == runtime.RunnerGone {
		all = append(all, runtime.TaskEvent{At: e.goneAt, Kind: runtime.TaskGone, Detail: e.runner.Message})
	}
	slices.SortStableFunc(all, func(a, b runtime.TaskEvent) int { return a.At.Compare(b.At) })
	all = slices.CompactFunc(all, func(a, b runtime.TaskEvent) bool { return a.Kind == b.Kind && a.Detail == b.Detail })
	return all[max(0, len(all)-runtime.KeptTaskEvents):]
}

// toldEvent returns an event of a task as clients are told of it: of Nomad's
// texts, which may name paths of a node, nothing.
func toldEvent(event *api.TaskEvent) []runtime.TaskEvent {
	told := runtime.TaskEvent{At: time.Unix(0, event.Time)}
	switch event.Type {
	case api.TaskNotRestarting, api.TaskKilled:
		return nil // others tell the same
	case api.TaskReceived:
		told.Kind = runtime.TaskPlaced
	case api.TaskSetup, api.TaskBuildingTaskDir:
		told.Kind = runtime.TaskPreparing
	case api.TaskDownloadingArtifacts:
		told.Kind = runtime.TaskFetching
	case api.TaskStarted:
		told.Kind = runtime.TaskStarted
	case api.TaskRestarting:
		told.Kind, told.Detail = runtime.TaskRestarting, delay(event.Details["start_delay"])
	case api.TaskKilling:
		told.Kind = runtime.TaskStopping
	case api.TaskTerminated:
		told.Kind, told.Detail = runtime.TaskExited, exit(event)
		if event.Details["oom_killed"] == "true" {
			told.Kind, told.Detail = runtime.TaskOutOfMemory, ""
		}
	case api.TaskDriverFailure:
		told.Kind, told.Detail = runtime.TaskStartFailed, "its driver couldn't start it"
		if text := strings.ToLower(event.DisplayMessage); strings.Contains(text, "failed to pull") || strings.Contains(text, "failed to create image") {
			told.Detail = "its driver couldn't get its image" // docker, podman
		}
	case api.TaskSetupFailure:
		told.Kind, told.Detail = runtime.TaskStartFailed, "its node couldn't make what it needs"
	case api.TaskArtifactDownloadFailed:
		told.Kind, told.Detail = runtime.TaskStartFailed, "its node couldn't fetch its agent from this server"
	case api.TaskFailedValidation:
		told.Kind, told.Detail = runtime.TaskStartFailed, "its node doesn't take its task"
	case api.TaskDriverMessage:
		if !strings.Contains(strings.ToLower(event.DisplayMessage), "image") {
			return nil
		}
		told.Kind = runtime.TaskFetching
	default:
		told.Kind, told.Detail = runtime.TaskOther, "Nomad calls it "+shown(event.Type)
	}
	return []runtime.TaskEvent{told}
}

// exit says how a task's process ended.
func exit(event *api.TaskEvent) string {
	if signal := event.Details["signal"]; signal != "" && signal != "0" {
		return "by signal " + signal
	}
	return "with exit code " + cmp.Or(event.Details["exit_code"], "0")
}

// delay says how long Nomad waits, which it tells in nanoseconds.
func delay(text string) string {
	ns, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return ""
	}
	return "in " + time.Duration(ns).Round(time.Millisecond).String()
}
