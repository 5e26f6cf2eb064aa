package taskrunner

import (
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"
	"time"
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
	At      time.Time `json:"at"`
	Message string    `json:"message"`
}

// keepEvents is how many of the latest events a task has.
const keepEvents = 10

// Values returns those of all prestart hooks.
func (s *State) Values() Values {
	all := Values{}
	for _, values := range s.Done {
		maps.Copy(all, values)
	}
	return all
}

// note adds an event.
func (s *State) note(at time.Time, message string) {
	// A new array: the old one may be with who was told of it.
	s.Events = append(slices.Clone(s.Events[max(0, len(s.Events)-keepEvents+1):]), Event{at, message})
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
