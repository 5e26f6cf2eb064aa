package runtime

import "time"

// A TaskEvent is an event in a runner's life, for people. It contains no secret and no detail of
// a machine.
type TaskEvent struct {
	At     time.Time
	Kind   TaskEventKind
	Detail string // what Kind doesn't say: an exit code, a reason; often ""
}

// KeptTaskEvents is how many events are kept of each runner: the latest ones.
const KeptTaskEvents = 10

// A TaskEventKind is the kind of an event.
type TaskEventKind string

// The kinds, roughly in the order of a runner's life.
const (
	TaskPlaced        TaskEventKind = "PLACED"
	TaskPreparing     TaskEventKind = "PREPARING"
	TaskFetching      TaskEventKind = "FETCHING"
	TaskStarted       TaskEventKind = "STARTED"
	TaskReady         TaskEventKind = "READY"
	TaskStartFailed   TaskEventKind = "START_FAILED"
	TaskRestarting    TaskEventKind = "RESTARTING"
	TaskRestored      TaskEventKind = "RESTORED"
	TaskExited        TaskEventKind = "EXITED"
	TaskOutOfMemory   TaskEventKind = "OUT_OF_MEMORY"
	TaskGone          TaskEventKind = "GONE"
	TaskStopping      TaskEventKind = "STOPPING"
	TaskForced        TaskEventKind = "FORCED"
	TaskRemovalFailed TaskEventKind = "REMOVAL_FAILED"
	TaskEnded         TaskEventKind = "ENDED"
	TaskOther         TaskEventKind = "OTHER"
)

// sentences describe the kinds in words.
var sentences = map[TaskEventKind]string{
	TaskPlaced:        "It was placed on a machine",
	TaskPreparing:     "Its sandbox is being prepared",
	TaskFetching:      "Its image or its agent is being fetched",
	TaskStarted:       "Its first process was started",
	TaskReady:         "Its agent answered, so it can be claimed",
	TaskStartFailed:   "It could not be started",
	TaskRestarting:    "It is being restarted",
	TaskRestored:      "It kept running while no server was connected",
	TaskExited:        "Its agent exited",
	TaskOutOfMemory:   "It ran out of memory, and its agent was killed",
	TaskGone:          "It is gone",
	TaskStopping:      "It is being stopped",
	TaskForced:        "It didn't stop in time and was killed",
	TaskRemovalFailed: "It could not be removed completely; the server retries",
	TaskEnded:         "All its processes have ended",
	TaskOther:         "Another event",
}

// Message describes the event in one sentence.
func (e TaskEvent) Message() string {
	if e.Detail == "" {
		return sentences[e.Kind] + "."
	}
	return sentences[e.Kind] + ": " + e.Detail + "."
}
