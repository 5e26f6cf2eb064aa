package listing

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/runtime"
)

// Evidence is everything that Nomad's lists say of one runner.
type Evidence struct {
	Purged      bool // its job no longer exists
	Stopped     bool // its job was stopped
	Dead        bool // nothing of its job runs or will run
	Allocations []*api.AllocationListStub
	Evaluations []*api.Evaluation
	Draining    func(node string) bool // reports whether the node is being drained, or was a moment ago
	Ready       *Readiness             // of its agent, if that ever answered
}

// A Readiness is when and where an agent has answered.
type Readiness struct {
	Allocation string // empty if it is unknown, since an earlier server saw it
	Restarts   uint64 // of its task, at that time
	Index      uint64 // of Nomad's state: a newer allocation isn't the agent's
	At         time.Time
}

// An Outcome is the state of a runner, and why.
type Outcome struct {
	State      runtime.RunnerState     // STARTING, IDLE or GONE
	Reason     runtime.GoneReason      // only if it is GONE
	Message    string                  // for clients, if there is something to say
	Lacks      []Dimension             // what its evaluation waits for, if it waits only for room
	Allocation *api.AllocationListStub // where its agent is or will be; nil without an allocation
	OOMKills   int64                   // processes killed because memory was full, as reported by Nomad
}

// OutcomeOf returns the outcome of a runner. It sorts the allocations of s in place.
func OutcomeOf(s Evidence) Outcome {
	slices.SortFunc(s.Allocations, func(a, b *api.AllocationListStub) int { return cmp.Compare(a.CreateIndex, b.CreateIndex) })
	var o Outcome
	if s.Ready == nil {
		o = judgeStarting(s)
	} else {
		o = judgeReady(s)
	}
	for _, a := range s.Allocations {
		o.OOMKills += oomKills(a)
	}
	if o.State == runtime.RunnerGone {
		o.Message = cmp.Or(o.Message, "it ended")
	}
	return o
}

// judgeStarting judges a runner whose agent hasn't answered. It is gone if its job was stopped
// outside of Rockpool, or if no allocation of it runs or will run.
func judgeStarting(s Evidence) Outcome {
	if s.Purged || s.Stopped {
		return Outcome{State: runtime.RunnerGone, Reason: runtime.GoneStoppedOutside, Message: "its job was stopped outside of Rockpool"}
	}
	if len(s.Allocations) == 0 {
		reason, over := explain(s.Evaluations)
		if over {
			return Outcome{State: runtime.RunnerGone, Reason: runtime.GoneStartFailed, Message: cmp.Or(reason, "Nomad couldn't place it on a node")}
		}
		return Outcome{State: runtime.RunnerStarting, Message: reason, Lacks: lacks(s.Evaluations)}
	}
	last := s.Allocations[len(s.Allocations)-1]
	if !Ended(last) {
		return Outcome{State: runtime.RunnerStarting, Message: waitsFor(last), Allocation: last}
	}
	reason, message := endReason(s, last)
	if !s.Dead && last.NextAllocation == "" && (reason != runtime.GoneStoppedOutside) {
		// Nomad will place it again, as often as its policy allows. After a drain or a lost node it
		// does so in any case.
		return Outcome{State: runtime.RunnerStarting, Message: "Nomad will place it again: " + message}
	}
	// It never became ready, so whatever else ended its task, its start failed.
	if reason != runtime.GoneOutOfMemory {
		reason = runtime.GoneStartFailed
	}
	return Outcome{State: runtime.RunnerGone, Reason: reason, Message: message}
}

// judgeReady judges a runner whose agent has answered. A replacement of its task or allocation is
// empty, so the runner is gone then.
func judgeReady(s Evidence) Outcome {
	// own is the agent's allocation, next a later one. If the agent's is unknown, it is the newest
	// that existed when the variable was created.
	var own, next *api.AllocationListStub
	for _, a := range s.Allocations {
		switch {
		case s.Ready.Allocation == a.ID, s.Ready.Allocation == "" && a.CreateIndex <= s.Ready.Index:
			own = a
		case own != nil || a.CreateIndex > s.Ready.Index:
			next = a
		}
	}
	if own != nil && Ended(own) {
		reason, message := endReason(s, own)
		return Outcome{State: runtime.RunnerGone, Reason: reason, Message: message}
	}
	switch {
	case s.Purged:
		return Outcome{State: runtime.RunnerGone, Reason: runtime.GoneStoppedOutside, Message: "its job was purged outside of Rockpool"}
	case s.Stopped:
		return Outcome{State: runtime.RunnerGone, Reason: runtime.GoneStoppedOutside, Message: "its job was stopped outside of Rockpool"}
	case next != nil:
		return Outcome{State: runtime.RunnerGone, Reason: runtime.GoneRescheduled, Message: "Nomad placed it on a node again, so its files and processes are lost"}
	case own == nil && !s.Dead: // its job was listed before it was purged, the allocations afterwards
		return Outcome{State: runtime.RunnerGone, Reason: runtime.GoneStoppedOutside, Message: "its job was purged outside of Rockpool"}
	case own == nil:
		return Outcome{State: runtime.RunnerGone, Reason: runtime.GoneUnknown, Message: "Nomad no longer knows its allocation"}
	case own.ClientStatus == api.AllocClientStatusUnknown:
		return Outcome{State: runtime.RunnerGone, Reason: runtime.GoneUnknown, Message: "its node is disconnected"}
	case Restarts(own) > s.Ready.Restarts:
		if oomKills(own) > 0 {
			return Outcome{State: runtime.RunnerGone, Reason: runtime.GoneOutOfMemory, Message: "its memory was full, and its agent was killed"}
		}
		return Outcome{State: runtime.RunnerGone, Reason: runtime.GoneAgentDied, Message: "its agent was restarted, so its processes are lost"}
	}
	return Outcome{State: runtime.RunnerIdle, Allocation: own}
}

// Ended reports whether an allocation has ended or is about to end.
func Ended(a *api.AllocationListStub) bool {
	return hasEnded(a) || a.DesiredStatus != api.AllocDesiredStatusRun
}

// Runs reports whether a task of an allocation runs. The allocation's own status isn't enough: it
// is running as soon as one of its tasks is, while the runner's image may still be pulled.
func Runs(a *api.AllocationListStub, task string) bool {
	state := a.TaskStates[task]
	return state != nil && state.State == TaskRuns
}

// TaskRuns is Nomad's state of a running task.
const TaskRuns = "running"

// Restarts returns how often an allocation's tasks were restarted.
func Restarts(a *api.AllocationListStub) uint64 {
	var all uint64
	for _, task := range a.TaskStates {
		all = max(all, task.Restarts)
	}
	return all
}

func endReason(s Evidence, a *api.AllocationListStub) (runtime.GoneReason, string) {
	description := strings.TrimSpace(a.DesiredDescription)
	switch {
	case oomKills(a) > 0:
		return runtime.GoneOutOfMemory, "its memory was full, and its agent was killed"
	case a.ClientStatus == api.AllocClientStatusLost:
		return runtime.GoneUnknown, "its node was lost"
	case a.DesiredStatus == api.AllocDesiredStatusEvict || a.PreemptedByAllocation != "":
		return runtime.GoneEvicted, "it was preempted by a job of a higher priority"
	// A drain and a lost node stop allocations, too. So both are checked before a stop from
	// outside.
	case a.DesiredStatus == api.AllocDesiredStatusStop && s.Draining != nil && s.Draining(a.NodeID):
		return runtime.GoneDrained, "its node is being drained"
	case a.ClientStatus == api.AllocClientStatusFailed && strings.Contains(description, "rescheduled"):
		return runtime.GoneRescheduled, "its task failed, and Nomad placed it again: " + taskEnd(a)
	case a.ClientStatus == api.AllocClientStatusFailed:
		return runtime.GoneAgentDied, taskEnd(a)
	case a.DesiredStatus == api.AllocDesiredStatusStop && strings.Contains(description, "node is down"):
		return runtime.GoneUnknown, "its node was lost"
	case a.DesiredStatus == api.AllocDesiredStatusStop:
		return runtime.GoneStoppedOutside, "its allocation was stopped outside of Rockpool"
	default:
		return runtime.GoneAgentDied, taskEnd(a)
	}
}

func oomKills(a *api.AllocationListStub) int64 {
	var kills int64
	for _, task := range a.TaskStates {
		for _, event := range task.Events {
			if event.Type == api.TaskTerminated && event.Details["oom_killed"] == "true" {
				kills++
			}
		}
	}
	return kills
}

var failures = []string{
	api.TaskDriverFailure, api.TaskSetupFailure, api.TaskArtifactDownloadFailed, api.TaskFailedValidation,
}

// taskEnd returns a task's latest failure, or its exit, for clients: without Nomad's texts.
func taskEnd(a *api.AllocationListStub) string {
	for _, event := range latest(a) {
		switch {
		case slices.Contains(failures, event.Type):
			return translate(event)[0].Detail + "; see the server's log"
		case event.Type == api.TaskTerminated && event.Details["oom_killed"] == "true":
			return "its memory was full, and its agent was killed"
		case event.Type == api.TaskTerminated:
			return "its agent ended " + exit(event)
		}
	}
	return "its task ended"
}

// NewFailures returns the listed allocations that have failed since the list before.
func NewFailures(before, listed []*api.AllocationListStub) []*api.AllocationListStub {
	var all []*api.AllocationListStub
	for _, a := range listed {
		known := func(old *api.AllocationListStub) bool { return old.ID == a.ID && old.ClientStatus == a.ClientStatus }
		if a.ClientStatus == api.AllocClientStatusFailed && !slices.ContainsFunc(before, known) {
			all = append(all, a)
		}
	}
	return all
}

// Failure returns Nomad's text, for the log only: it may contain a node's paths or a registry's answer.
func Failure(a *api.AllocationListStub) string {
	for _, event := range latest(a) {
		if slices.Contains(failures, event.Type) {
			return fmt.Sprintf("%s: %s", strings.ToLower(event.Type), connection.FirstLine(event.DisplayMessage))
		}
	}
	return connection.FirstLine(a.ClientDescription)
}

// waitsFor returns what a starting task waits for. Of Nomad's texts it uses only an image's progress.
func waitsFor(a *api.AllocationListStub) string {
	events := latest(a)
	if len(events) == 0 {
		return ""
	}
	if text := events[0].DisplayMessage; strings.HasPrefix(text, "Downloading image") || strings.HasPrefix(text, "Docker image pull progress: ") {
		return connection.FirstLine(text)
	}
	for _, event := range translate(events[0]) {
		switch event.Kind {
		case runtime.TaskFetching:
			return "its image or its agent is being downloaded"
		case runtime.TaskRestarting:
			return strings.TrimSpace("its task will be restarted " + event.Detail)
		case runtime.TaskStartFailed:
			return event.Detail
		}
	}
	return ""
}

func latest(a *api.AllocationListStub) []*api.TaskEvent {
	var all []*api.TaskEvent
	for _, task := range a.TaskStates {
		all = append(all, task.Events...)
	}
	slices.SortStableFunc(all, func(a, b *api.TaskEvent) int { return cmp.Compare(b.Time, a.Time) })
	return all
}

// AllOver reports whether the processes of all allocations have ended, or their clients are lost.
func AllOver(all []*api.AllocationListStub) bool {
	return !slices.ContainsFunc(all, func(a *api.AllocationListStub) bool { return !hasEnded(a) })
}

// hasEnded reports whether an allocation's processes have ended, or its client is lost permanently.
func hasEnded(a *api.AllocationListStub) bool {
	switch a.ClientStatus {
	case api.AllocClientStatusComplete, api.AllocClientStatusFailed, api.AllocClientStatusLost:
		return true
	default:
		return false
	}
}

// Ports returns the addresses of an allocation's ports.
func Ports(a *api.AllocationListStub) []runtime.PortMapping {
	if a.AllocatedResources == nil {
		return nil
	}
	var all []runtime.PortMapping
	for _, p := range a.AllocatedResources.Shared.Ports {
		if p.To > 0 {
			all = append(all, runtime.PortMapping{ExposedPort: p.To, Address: net.JoinHostPort(p.HostIP, strconv.Itoa(p.Value))})
		}
	}
	return all
}

// Events returns the latest events of allocations' tasks, together with others, in order of time.
func Events(allocations []*api.AllocationListStub, others ...runtime.TaskEvent) []runtime.TaskEvent {
	var all []runtime.TaskEvent
	for _, a := range allocations {
		for _, task := range a.TaskStates {
			for _, event := range task.Events {
				all = append(all, translate(event)...)
			}
		}
	}
	all = append(all, others...)
	slices.SortStableFunc(all, func(a, b runtime.TaskEvent) int { return a.At.Compare(b.At) })
	all = slices.CompactFunc(all, func(a, b runtime.TaskEvent) bool { return a.Kind == b.Kind && a.Detail == b.Detail })
	return all[max(0, len(all)-runtime.KeptTaskEvents):]
}

// translate converts an event for clients, without Nomad's texts, which may contain paths of a node.
func translate(event *api.TaskEvent) []runtime.TaskEvent {
	ours := runtime.TaskEvent{At: time.Unix(0, event.Time)}
	switch event.Type {
	case api.TaskNotRestarting, api.TaskKilled:
		return nil // other events report the same
	case api.TaskReceived:
		ours.Kind = runtime.TaskPlaced
	case api.TaskSetup, api.TaskBuildingTaskDir:
		ours.Kind = runtime.TaskPreparing
	case api.TaskDownloadingArtifacts:
		ours.Kind = runtime.TaskFetching
	case api.TaskStarted:
		ours.Kind = runtime.TaskStarted
	case api.TaskRestarting:
		ours.Kind, ours.Detail = runtime.TaskRestarting, delay(event.Details["start_delay"])
	case api.TaskKilling:
		ours.Kind = runtime.TaskStopping
	case api.TaskTerminated:
		ours.Kind, ours.Detail = runtime.TaskExited, exit(event)
		if event.Details["oom_killed"] == "true" {
			ours.Kind, ours.Detail = runtime.TaskOutOfMemory, ""
		}
	case api.TaskDriverFailure:
		ours.Kind, ours.Detail = runtime.TaskStartFailed, "its driver couldn't start it"
		// Nomad's text only selects the message. Clients never see it.
		if strings.Contains(strings.ToLower(event.DisplayMessage), "volumes are not enabled") {
			ours.Detail = "its node allows no volumes, which --nomad-workspace volume needs"
		}
		if text := event.DisplayMessage; strings.Contains(text, "/bin/sh") && (strings.Contains(text, "no such file") || strings.Contains(text, "not found")) {
			ours.Detail = "its driver couldn't start it: its image has no /bin/sh, which is needed to wait for the agent (--nomad-stream-agent)"
		}
		if text := strings.ToLower(event.DisplayMessage); strings.Contains(text, "failed to pull") || strings.Contains(text, "failed to create image") {
			ours.Detail = "its driver couldn't get its image" // docker and podman
		}
	case api.TaskSetupFailure:
		ours.Kind, ours.Detail = runtime.TaskStartFailed, "its node couldn't prepare the task"
	case api.TaskArtifactDownloadFailed:
		ours.Kind, ours.Detail = runtime.TaskStartFailed, "its node couldn't download the agent from this server"
	case api.TaskFailedValidation:
		ours.Kind, ours.Detail = runtime.TaskStartFailed, "its node rejected the task"
	// Only messages about an image are useful to clients. Nomad's text isn't passed on.
	case api.TaskDriverMessage:
		if !strings.Contains(strings.ToLower(event.DisplayMessage), "image") {
			return nil
		}
		ours.Kind = runtime.TaskFetching
	default:
		ours.Kind, ours.Detail = runtime.TaskOther, "Nomad calls it "+connection.FirstLine(event.Type)
	}
	return []runtime.TaskEvent{ours}
}

func exit(event *api.TaskEvent) string {
	if signal := event.Details["signal"]; signal != "" && signal != "0" {
		return "by signal " + signal
	}
	code := cmp.Or(event.Details["exit_code"], "0")
	switch code {
	case strconv.Itoa(agent.ExitNotRoot):
		return "because it isn't root in its task: check --nomad-user, or the user in your own template"
	case strconv.Itoa(agent.ExitNoNamespaces):
		return "because its node doesn't allow user namespaces, which are needed to limit what programs write: see the driver exec in docs/guides/nomad.md"
	}
	return "with exit code " + code
}

func delay(text string) string {
	ns, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return ""
	}
	return "in " + time.Duration(ns).Round(time.Millisecond).String()
}
