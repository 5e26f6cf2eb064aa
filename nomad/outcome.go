package nomad

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
)

// sight is all that lists say of one runner.
type sight struct {
	purged      bool // its job isn't there any more
	stopped     bool // its job was stopped
	dead        bool // nothing of its job runs, or is to
	allocations []*api.AllocationListStub
	evaluations []*api.Evaluation
	draining    func(node string) bool // the node is being drained, or was a moment ago
	ready       *readiness             // nil: its agent never answered
}

// readiness is when, and where, an agent had answered.
type readiness struct {
	allocation string // "": an earlier server knew
	restarts   uint64 // of its task, by then
	index      uint64 // of Nomad's state: a younger allocation is another one
	at         time.Time
}

// outcome is what a runner has come to.
type outcome struct {
	state      runtime.RunnerState // STARTING, IDLE or GONE
	reason     runtime.GoneReason
	message    string
	allocation *api.AllocationListStub // where its agent is, or may be; nil: nowhere
	oom        int64                   // processes that were killed because memory was full, as Nomad tells
}

// judge says what a runner has come to. It is pure, and looks at nothing but the
// listed truth.
func judge(s sight) outcome {
	slices.SortFunc(s.allocations, func(a, b *api.AllocationListStub) int { return cmp.Compare(a.CreateIndex, b.CreateIndex) })
	var o outcome
	if s.ready == nil {
		o = judgeStarting(s)
	} else {
		o = judgeReady(s)
	}
	for _, a := range s.allocations {
		o.oom += oomKills(a)
	}
	if o.state == runtime.RunnerGone {
		o.message = cmp.Or(o.message, "it ended")
	}
	return o
}

func judgeStarting(s sight) outcome {
	if s.purged || s.stopped {
		return outcome{state: runtime.RunnerGone, reason: runtime.GoneStoppedOutside, message: "its job was stopped by somebody else"}
	}
	if len(s.allocations) == 0 {
		reason, over := explain(s.evaluations)
		if over {
			return outcome{state: runtime.RunnerGone, reason: runtime.GoneStartFailed, message: cmp.Or(reason, "Nomad gave it no place")}
		}
		return outcome{state: runtime.RunnerStarting, message: reason}
	}
	last := s.allocations[len(s.allocations)-1]
	if !ended(last) {
		return outcome{state: runtime.RunnerStarting, message: waitsFor(last), allocation: last}
	}
	reason, message := why(s, last)
	if !s.dead && last.NextAllocation == "" && (reason != runtime.GoneStoppedOutside) {
		// It is about to be placed anew, as often as its policy allows; what a drain
		// or a lost node stopped is, in any case.
		return outcome{state: runtime.RunnerStarting, message: "to be placed anew: " + message}
	}
	if reason != runtime.GoneOutOfMemory {
		reason = runtime.GoneStartFailed
	}
	return outcome{state: runtime.RunnerGone, reason: reason, message: message}
}

// judgeReady judges a runner whose agent had answered. What runs in its place
// now is empty, so whatever replaced it is none of its.
func judgeReady(s sight) outcome {
	var own, next *api.AllocationListStub
	for _, a := range s.allocations {
		switch {
		case s.ready.allocation == a.ID, s.ready.allocation == "" && a.CreateIndex <= s.ready.index:
			own = a
		case own != nil || a.CreateIndex > s.ready.index:
			next = a
		}
	}
	if own != nil && ended(own) {
		reason, message := why(s, own)
		return outcome{state: runtime.RunnerGone, reason: reason, message: message}
	}
	switch {
	case s.purged:
		return outcome{state: runtime.RunnerGone, reason: runtime.GoneStoppedOutside, message: "its job was purged by somebody else"}
	case s.stopped:
		return outcome{state: runtime.RunnerGone, reason: runtime.GoneStoppedOutside, message: "its job was stopped by somebody else"}
	case next != nil:
		return outcome{state: runtime.RunnerGone, reason: runtime.GoneRescheduled, message: "Nomad placed it anew, so what was in it is lost"}
	case own == nil && !s.dead: // its job was listed before it was purged, the allocations after that
		return outcome{state: runtime.RunnerGone, reason: runtime.GoneStoppedOutside, message: "its job was purged by somebody else"}
	case own == nil:
		return outcome{state: runtime.RunnerGone, reason: runtime.GoneUnknown, message: "Nomad doesn't know its allocation any more"}
	case own.ClientStatus == api.AllocClientStatusUnknown:
		return outcome{state: runtime.RunnerGone, reason: runtime.GoneUnknown, message: "its node is disconnected"}
	case restarts(own) > s.ready.restarts:
		if oomKills(own) > 0 {
			return outcome{state: runtime.RunnerGone, reason: runtime.GoneOutOfMemory, message: "its memory was full, and its agent was killed"}
		}
		return outcome{state: runtime.RunnerGone, reason: runtime.GoneAgentDied, message: "its agent was restarted, so what ran in it is lost"}
	}
	return outcome{state: runtime.RunnerIdle, allocation: own}
}

// ended reports whether nothing of an allocation runs, or is to run much
// longer.
func ended(a *api.AllocationListStub) bool {
	switch a.ClientStatus {
	case api.AllocClientStatusComplete, api.AllocClientStatusFailed, api.AllocClientStatusLost:
		return true
	default:
		return a.DesiredStatus != api.AllocDesiredStatusRun
	}
}

// runs reports whether a task of an allocation's runs. The allocation's own
// status says so as soon as any of its tasks does: one beside the runner's, for
// example, whose image is still pulled.
func runs(a *api.AllocationListStub, task string) bool {
	state := a.TaskStates[task]
	return state != nil && state.State == taskRuns
}

// taskRuns is the state of a task that runs, as Nomad tells it.
const taskRuns = "running"

// restarts returns how often an allocation's tasks were started again.
func restarts(a *api.AllocationListStub) uint64 {
	var all uint64
	for _, task := range a.TaskStates {
		all = max(all, task.Restarts)
	}
	return all
}

// why says why an allocation ended, or is to.
func why(s sight, a *api.AllocationListStub) (runtime.GoneReason, string) {
	description := strings.TrimSpace(a.DesiredDescription)
	switch {
	case oomKills(a) > 0:
		return runtime.GoneOutOfMemory, "its memory was full, and its agent was killed"
	case a.ClientStatus == api.AllocClientStatusLost:
		return runtime.GoneUnknown, "its node was lost"
	case a.DesiredStatus == api.AllocDesiredStatusEvict || a.PreemptedByAllocation != "":
		return runtime.GoneEvicted, "it was preempted by a job of a higher priority"
	case a.DesiredStatus == api.AllocDesiredStatusStop && s.draining != nil && s.draining(a.NodeID):
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
			return toldEvent(event)[0].Detail + "; the server's log says more"
		case event.Type == api.TaskTerminated && event.Details["oom_killed"] == "true":
			return "its memory was full, and its agent was killed"
		case event.Type == api.TaskTerminated:
			return "its agent ended " + exit(event)
		}
	}
	return "its task ended"
}

// nomadsWords is what Nomad says of an allocation that failed, for the log: it
// may name paths of a node, or what a registry answered.
func nomadsWords(a *api.AllocationListStub) string {
	for _, event := range latest(a) {
		if slices.Contains(failures, event.Type) {
			return fmt.Sprintf("%s: %s", strings.ToLower(event.Type), shown(event.DisplayMessage))
		}
	}
	return shown(a.ClientDescription)
}

// waitsFor says what a task that isn't running yet does. Of Nomad's words it has
// only how far docker is with an image.
func waitsFor(a *api.AllocationListStub) string {
	events := latest(a)
	if len(events) == 0 {
		return ""
	}
	if text := events[0].DisplayMessage; strings.HasPrefix(text, "Downloading image") || strings.HasPrefix(text, "Docker image pull progress: ") {
		return shown(text)
	}
	for _, told := range toldEvent(events[0]) {
		switch told.Kind {
		case runtime.TaskFetching:
			return "its image, or its agent, is being fetched"
		case runtime.TaskRestarting:
			return strings.TrimSpace("its task is started again " + told.Detail)
		case runtime.TaskStartFailed:
			return told.Detail
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

// shown bounds a text of Nomad's.
func shown(text string) string {
	const most = 300
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + " …"
	}
	return text
}
