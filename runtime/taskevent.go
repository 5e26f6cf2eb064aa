package runtime

import "time"

// A TaskEvent is something that happened to a runner, for people to read.
// Nothing of it is a secret or a detail of a machine.
type TaskEvent struct {
	At     time.Time
	Kind   TaskEventKind
	Detail string // what its kind doesn't say: an exit code, a reason; often ""
}

// KeptTaskEvents is how many of the latest events of a runner are kept.
const KeptTaskEvents = 10

// A TaskEventKind says what happened.
type TaskEventKind string

// The kinds, about in the order of a runner's life.
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

// sentences are what the kinds say, in words.
var sentences = map[TaskEventKind]string{
	TaskPlaced:        "It got its place",
	TaskPreparing:     "What it needs is being made",
	TaskFetching:      "Its image, or its agent, is being fetched",
	TaskStarted:       "Its first process was started",
	TaskReady:         "Its agent answered, so it can be claimed",
	TaskStartFailed:   "It could not be started",
	TaskRestarting:    "It is started again",
	TaskRestored:      "It went on while no server watched it",
	TaskExited:        "Its agent ended",
	TaskOutOfMemory:   "Its memory was full, and its agent was killed",
	TaskGone:          "It is gone",
	TaskStopping:      "It is being ended",
	TaskForced:        "It didn't end in time, and was killed",
	TaskRemovalFailed: "Not all of it could be removed; that is tried again",
	TaskEnded:         "Nothing of it runs any more",
	TaskOther:         "Something else happened to it",
}

// Message says what happened, in one sentence.
func (e TaskEvent) Message() string {
	if e.Detail == "" {
		return sentences[e.Kind] + "."
	}
	return sentences[e.Kind] + ": " + e.Detail + "."
}
