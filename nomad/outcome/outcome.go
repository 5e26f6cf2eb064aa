// Package outcome derives, from what Nomad lists, what became of a runner and why, and
// gives evaluations, allocations and task events in Rockpool's words. It is pure: it calls
// nothing, and keeps nothing.
package outcome

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/runtime"
)

// Evidence is all that lists say of one runner.
type Evidence struct {
	Purged      bool // its job isn't there any more
	Stopped     bool // its job was stopped
	Dead        bool // nothing of its job runs, or is to
	Allocations []*api.AllocationListStub
	Evaluations []*api.Evaluation
	Draining    func(node string) bool // the node is being drained, or was a moment ago
	Ready       *Readiness             // nil: its agent never answered
}

// A Readiness is when, and where, an agent had answered.
type Readiness struct {
	Allocation string // "": an earlier server knew
	Restarts   uint64 // of its task, by then
	Index      uint64 // of Nomad's state: a younger allocation is another one
	At         time.Time
}

// An Outcome is the state that a runner is in.
type Outcome struct {
	State      runtime.RunnerState // STARTING, IDLE or GONE
	Reason     runtime.GoneReason
	Message    string
	Allocation *api.AllocationListStub // where its agent is, or may be; nil: nowhere
	OOMKills   int64                   // processes that were killed because memory was full, as Nomad reports
}

// Of returns the outcome of a runner. It sorts the allocations of s.
func Of(s Evidence) Outcome {
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

func judgeStarting(s Evidence) Outcome {
	if s.Purged || s.Stopped {
		return Outcome{State: runtime.RunnerGone, Reason: runtime.GoneStoppedOutside, Message: "its job was stopped by somebody else"}
	}
	if len(s.Allocations) == 0 {
		reason, over := explain(s.Evaluations)
		if over {
			return Outcome{State: runtime.RunnerGone, Reason: runtime.GoneStartFailed, Message: cmp.Or(reason, "Nomad gave it no place")}
		}
		return Outcome{State: runtime.RunnerStarting, Message: reason}
	}
	last := s.Allocations[len(s.Allocations)-1]
	if !Ended(last) {
		return Outcome{State: runtime.RunnerStarting, Message: waitsFor(last), Allocation: last}
	}
	reason, message := why(s, last)
	if !s.Dead && last.NextAllocation == "" && (reason != runtime.GoneStoppedOutside) {
		// It is about to be placed anew, as often as its policy allows; what a drain
		// or a lost node stopped is, in any case.
		return Outcome{State: runtime.RunnerStarting, Message: "to be placed anew: " + message}
	}
	if reason != runtime.GoneOutOfMemory {
		reason = runtime.GoneStartFailed
	}
	return Outcome{State: runtime.RunnerGone, Reason: reason, Message: message}
}

// judgeReady judges a runner whose agent had answered. What runs in its place
// now is empty, so whatever replaced it is none of its.
func judgeReady(s Evidence) Outcome {
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
		reason, message := why(s, own)
		return Outcome{State: runtime.RunnerGone, Reason: reason, Message: message}
	}
	switch {
	case s.Purged:
		return Outcome{State: runtime.RunnerGone, Reason: runtime.GoneStoppedOutside, Message: "its job was purged by somebody else"}
	case s.Stopped:
		return Outcome{State: runtime.RunnerGone, Reason: runtime.GoneStoppedOutside, Message: "its job was stopped by somebody else"}
	case next != nil:
		return Outcome{State: runtime.RunnerGone, Reason: runtime.GoneRescheduled, Message: "Nomad placed it anew, so what was in it is lost"}
	case own == nil && !s.Dead: // its job was listed before it was purged, the allocations after that
		return Outcome{State: runtime.RunnerGone, Reason: runtime.GoneStoppedOutside, Message: "its job was purged by somebody else"}
	case own == nil:
		return Outcome{State: runtime.RunnerGone, Reason: runtime.GoneUnknown, Message: "Nomad doesn't know its allocation any more"}
	case own.ClientStatus == api.AllocClientStatusUnknown:
		return Outcome{State: runtime.RunnerGone, Reason: runtime.GoneUnknown, Message: "its node is disconnected"}
	case Restarts(own) > s.Ready.Restarts:
		if oomKills(own) > 0 {
			return Outcome{State: runtime.RunnerGone, Reason: runtime.GoneOutOfMemory, Message: "its memory was full, and its agent was killed"}
		}
		return Outcome{State: runtime.RunnerGone, Reason: runtime.GoneAgentDied, Message: "its agent was restarted, so what ran in it is lost"}
	}
	return Outcome{State: runtime.RunnerIdle, Allocation: own}
}

// Ended reports whether nothing of an allocation runs, or is to run much
// longer.
func Ended(a *api.AllocationListStub) bool {
	return over(a) || a.DesiredStatus != api.AllocDesiredStatusRun
}

// Runs reports whether a task of an allocation's runs. The allocation's own
// status says so as soon as any of its tasks does: one beside the runner's, for
// example, whose image is still pulled.
func Runs(a *api.AllocationListStub, task string) bool {
	state := a.TaskStates[task]
	return state != nil && state.State == TaskRuns
}

// TaskRuns is the state of a task that runs, in Nomad's words.
const TaskRuns = "running"

// Restarts returns how often an allocation's tasks were started again.
func Restarts(a *api.AllocationListStub) uint64 {
	var all uint64
	for _, task := range a.TaskStates {
		all = max(all, task.Restarts)
	}
	return all
}

// why says why an allocation ended, or is to.
func why(s Evidence, a *api.AllocationListStub) (runtime.GoneReason, string) {
	description := strings.TrimSpace(a.DesiredDescription)
	switch {
	case oomKills(a) > 0:
		return runtime.GoneOutOfMemory, "its memory was full, and its agent was killed"
	case a.ClientStatus == api.AllocClientStatusLost:
		return runtime.GoneUnknown, "its node was lost"
	case a.DesiredStatus == api.AllocDesiredStatusEvict || a.PreemptedByAllocation != "":
		return runtime.GoneEvicted, "it was preempted by a job of a higher priority"
	case a.DesiredStatus == api.AllocDesiredStatusStop && s.Draining != nil && s.Draining(a.NodeID):
		return runtime.GoneDrained, "its node is being drained"
	case a.ClientStatus == api.AllocClientStatusFailed && strings.Contains(description, "rescheduled"):
		return runtime.GoneRescheduled, "its task failed, and Nomad placed it anew: " + taskEnd(a)
	case a.ClientStatus == api.AllocClientStatusFailed:
		return runtime.GoneAgentDied, taskEnd(a)
	case a.DesiredStatus == api.AllocDesiredStatusStop && strings.Contains(description, "node is down"):
		return runtime.GoneUnknown, "its node was lost"
	case a.DesiredStatus == api.AllocDesiredStatusStop:
		return runtime.GoneStoppedOutside, "its allocation was stopped by somebody else"
	default:
		return runtime.GoneAgentDied, taskEnd(a)
	}
}

// oomKills counts the ends of an allocation's tasks for want of memory.
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

// failures are the events that say why a task couldn't start.
var failures = []string{
	api.TaskDriverFailure, api.TaskSetupFailure, api.TaskArtifactDownloadFailed, api.TaskFailedValidation,
}

// taskEnd says how a task ended: the latest failure, or its exit. It is for
// clients, so it is in our words.
func taskEnd(a *api.AllocationListStub) string {
	for _, event := range latest(a) {
		switch {
		case slices.Contains(failures, event.Type):
			return translate(event)[0].Detail + "; the server's log says more"
		case event.Type == api.TaskTerminated && event.Details["oom_killed"] == "true":
			return "its memory was full, and its agent was killed"
		case event.Type == api.TaskTerminated:
			return "its agent ended " + exit(event)
		}
	}
	return "its task ended"
}

// NewFailures returns the allocations that failed since they were listed before.
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

// Failure is what Nomad says of an allocation that failed, for the log: it
// may name paths of a node, or what a registry answered.
func Failure(a *api.AllocationListStub) string {
	for _, event := range latest(a) {
		if slices.Contains(failures, event.Type) {
			return fmt.Sprintf("%s: %s", strings.ToLower(event.Type), connection.FirstLine(event.DisplayMessage))
		}
	}
	return connection.FirstLine(a.ClientDescription)
}

// waitsFor says what a task that isn't running yet does. Of Nomad's words it has
// only how far docker is with an image.
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
			return "its image, or its agent, is being fetched"
		case runtime.TaskRestarting:
			return strings.TrimSpace("its task is started again " + event.Detail)
		case runtime.TaskStartFailed:
			return event.Detail
		}
	}
	return ""
}

// latest are the events of an allocation's tasks, the youngest first.
func latest(a *api.AllocationListStub) []*api.TaskEvent {
	var all []*api.TaskEvent
	for _, task := range a.TaskStates {
		all = append(all, task.Events...)
	}
	slices.SortStableFunc(all, func(a, b *api.TaskEvent) int { return cmp.Compare(b.Time, a.Time) })
	return all
}

// AllOver reports whether the processes of all allocations have ended, as their clients
// say, or nothing more will be known of them.
func AllOver(all []*api.AllocationListStub) bool {
	return !slices.ContainsFunc(all, func(a *api.AllocationListStub) bool { return !over(a) })
}

func over(a *api.AllocationListStub) bool {
	switch a.ClientStatus {
	case api.AllocClientStatusComplete, api.AllocClientStatusFailed, api.AllocClientStatusLost:
		return true
	default:
		return false
	}
}

// Ports returns where an allocation's ports are reached.
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
