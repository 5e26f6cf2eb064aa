package taskrunner

import (
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// A Phase is where a task is in its life; see the package's diagram.
type Phase string

// The phases, in their order.
const (
	Pending  Phase = "PENDING"
	Running  Phase = "RUNNING"
	Stopping Phase = "STOPPING"
	Dead     Phase = "DEAD"
)

var phaseOrder = []Phase{Pending, Running, Stopping, Dead}

// Before reports whether a task in phase p can still come to phase q.
func (p Phase) Before(q Phase) bool {
	return slices.Index(phaseOrder, p) < slices.Index(phaseOrder, q)
}

// State is what a task keeps. Its zero value is a new task's, but for Phase.
type State struct {
	Phase       Phase             `json:"phase"`
	Done        map[string]Values `json:"done,omitempty"`   // by prestart hook
	Handle      json.RawMessage   `json:"handle,omitempty"` // from RUNNING on
	StartedAt   time.Time         `json:"startedAt,omitzero"`
	FinishedAt  time.Time         `json:"finishedAt,omitzero"`
	Failed      bool              `json:"failed,omitempty"` // it ended by itself
	Restarts    int               `json:"restarts,omitempty"`
	LastRestart time.Time         `json:"lastRestart,omitzero"`
	Waiting     string            `json:"waiting,omitempty"` // PENDING only: what the last start failed of
	End         *End              `json:"end,omitempty"`
	Leak        string            `json:"leak,omitempty"` // what could not be removed, and why
	Events      []Event           `json:"events,omitempty"`
}

// An Event is something that happened to a task, for people to read.
type Event struct {
	At      time.Time             `json:"at"`
	Kind    runtime.TaskEventKind `json:"kind,omitempty"`    // "": it is for the log alone
	Detail  string                `json:"detail,omitempty"`  // with Kind: what clients may know beside it
	Message string                `json:"message,omitempty"` // for the log: it may name paths of the machine
}

// Told returns the event as clients are told of it, and whether they are.
func (e Event) Told() (runtime.TaskEvent, bool) {
	return runtime.TaskEvent{At: e.At, Kind: e.Kind, Detail: e.Detail}, e.Kind != ""
}

// Values returns those of all prestart hooks.
func (s *State) Values() Values {
	all := Values{}
	for _, values := range s.Done {
		maps.Copy(all, values)
	}
	return all
}

// note adds an event.
func (s *State) note(event Event) {
	// A new array: the old one may be with who was told of it.
	s.Events = append(slices.Clone(s.Events[max(0, len(s.Events)-runtime.KeptTaskEvents+1):]), event)
}

// clone returns a copy that shares nothing that changes.
func (s *State) clone() State {
	c := *s
	c.Done = maps.Clone(s.Done)
	return c
}

// digest tells apart what has to be saved; events alone don't.
func (s *State) digest() [sha256.Size]byte {
	c := *s
	c.Events = nil
	text, err := json.Marshal(c)
	if err != nil {
		return [sha256.Size]byte{} // a handle that isn't JSON; saving will say so
	}
	return sha256.Sum256(text)
}
