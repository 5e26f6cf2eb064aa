package taskrunner

import (
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// A Phase is a task's phase; see the package's diagram.
type Phase string

// The phases, in the order in which they move.
const (
	Pending  Phase = "PENDING"
	Running  Phase = "RUNNING"
	Stopping Phase = "STOPPING"
	Dead     Phase = "DEAD"
)

// phaseOrder is the order in which phases move.
var phaseOrder = []Phase{Pending, Running, Stopping, Dead}

// Before reports whether p comes before q.
func (p Phase) Before(q Phase) bool {
	return slices.Index(phaseOrder, p) < slices.Index(phaseOrder, q)
}

// State is the stored state of a task. A new task's is zero apart from Phase.
type State struct {
	Phase       Phase             `json:"phase"`
	Done        map[string]Values `json:"done,omitempty"`   // values by the name of each prestart hook that succeeded
	Handle      json.RawMessage   `json:"handle,omitempty"` // what Reattach needs; from RUNNING on
	StartedAt   time.Time         `json:"startedAt,omitzero"`
	FinishedAt  time.Time         `json:"finishedAt,omitzero"`
	Failed      bool              `json:"failed,omitempty"` // it ended without Stop
	Restarts    int               `json:"restarts,omitempty"`
	LastRestart time.Time         `json:"lastRestart,omitzero"`
	Waiting     string            `json:"waiting,omitempty"` // PENDING only: why the last start failed
	End         *End              `json:"end,omitempty"`
	Leak        string            `json:"leak,omitempty"` // what couldn't be removed, and why
	Events      []Event           `json:"events,omitempty"`
}

// An Event is something that happened to a task.
type Event struct {
	At      time.Time             `json:"at"`
	Kind    runtime.TaskEventKind `json:"kind,omitempty"`    // "": only for the log
	Detail  string                `json:"detail,omitempty"`  // with Kind: details that clients may see
	Message string                `json:"message,omitempty"` // for the log only: it may name paths of the machine
}

// Public returns the event as clients see it, and false if they don't.
func (e Event) Public() (runtime.TaskEvent, bool) {
	return runtime.TaskEvent{At: e.At, Kind: e.Kind, Detail: e.Detail}, e.Kind != ""
}

// Values returns the values of all prestart hooks.
func (s *State) Values() Values {
	all := Values{}
	for _, values := range s.Done {
		maps.Copy(all, values)
	}
	return all
}

// note adds an event and drops the oldest beyond KeptTaskEvents.
func (s *State) note(event Event) {
	// A new array, because Save's receiver may still read the old one.
	s.Events = append(slices.Clone(s.Events[max(0, len(s.Events)-runtime.KeptTaskEvents+1):]), event)
}

// clone returns a copy that shares nothing mutable.
func (s *State) clone() State {
	c := *s
	c.Done = maps.Clone(s.Done)
	return c
}

// digest returns a hash of everything that must be saved; events alone needn't be.
func (s *State) digest() [sha256.Size]byte {
	c := *s
	c.Events = nil
	text, err := json.Marshal(c)
	if err != nil {
		return [sha256.Size]byte{} // a handle that isn't JSON: saving returns the error
	}
	return sha256.Sum256(text)
}
