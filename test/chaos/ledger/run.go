package ledger

import (
	"fmt"
	"time"
)

// A Run is one execution of a program, as far as its client knows it.
type Run struct {
	Program
	Runner    string
	Asked     time.Time // when it was first asked for
	cancelled bool      // it was asked to be, answered or not
	ID        string    // "" until a start was answered
	told      *Outcome  // the first that was told
	read      *Reading  // of the reader that first came to the end
}

// An Outcome is what a server says of an execution's end.
type Outcome struct {
	Outcome     string
	ExitCode    *int
	Signal      *string
	GoneReason  *string // of RUNNER_GONE
	OutputBytes int64
	FinishedAt  time.Time
}

func (o Outcome) String() string {
	text := o.Outcome
	if o.ExitCode != nil {
		text += fmt.Sprintf(" %d", *o.ExitCode)
	}
	if o.Signal != nil {
		text += " " + *o.Signal
	}
	if o.GoneReason != nil {
		text += " " + *o.GoneReason
	}
	return fmt.Sprintf("%s, %d bytes, at %s", text, o.OutputBytes, o.FinishedAt.Format(time.RFC3339Nano))
}

// Begin notes a run before it is asked for.
func (l *Ledger) Begin(p Program, runner string) *Run {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &Run{Program: p, Runner: runner, Asked: time.Now()}
	l.runs[p.Key] = r
	return r
}

// Started judges the answer to a start.
func (l *Ledger) Started(r *Run, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch r.ID {
	case "":
		l.counts[Executions]++
	case id:
	default:
		l.note(startedTwice, 1, "program %s is execution %s, and was %s", r.Key, id, r.ID)
	}
	r.ID = id
}

// Cancel notes, before it is asked for, that a run is to be cancelled.
func (l *Ledger) Cancel(r *Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.cancelled = true
}

// Ended judges what a server says of a run's end: the first time whether it can
// be, then whether it is still the same.
func (l *Ledger) Ended(r *Run, o Outcome) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.told != nil {
		if r.told.String() != o.String() {
			l.note(ChangedOutcomes, 1, "program %s ended as %s, and before as %s", r.Key, o, *r.told)
		}
		return
	}
	r.told = &o
	if o.GoneReason != nil {
		l.counts["runners gone: "+*o.GoneReason]++
	}
	l.counts["ended: "+o.Outcome]++
	if o.Outcome == "EXITED" && o.ExitCode != nil && *o.ExitCode == alreadyRan {
		l.note(startedTwice, 1, "program %s found that it had been started before", r.Key)
		return
	}
	if why := l.impossible(r, o, now); why != "" {
		l.note(MadeUp, 1, "program %s (to end by %s, in runner %s) ended as %s: %s", r.Key, r.Ends, r.Runner, o, why)
	}
}

// impossible returns why a run can't have ended so; "" if it can.
func (l *Ledger) impossible(r *Run, o Outcome, now time.Time) string {
	harmed := l.hurt(r.Runner)
	switch o.Outcome {
	case "EXITED", "SIGNALED":
		switch {
		case r.blocks == endless:
			return "it doesn't end by itself"
		case now.Sub(r.Asked) < r.least():
			return fmt.Sprintf("it takes %s", r.least())
		case o.Outcome == "EXITED" && (r.Ends != endsItself || o.ExitCode == nil || *o.ExitCode != r.code):
			return fmt.Sprintf("its code is %d", r.code)
		case o.Outcome == "SIGNALED" && (r.Ends != endsBySignal || o.Signal == nil || *o.Signal != "SIGKILL"):
			return "it sends itself no such signal"
		}
	case "TIME_LIMIT":
		switch {
		case r.Ends != endsByLimit:
			return "it has no limit so short"
		case now.Sub(r.Asked) < timeLimit*time.Second:
			return "it has more time"
		}
	case "CANCELLED":
		if !r.cancelled {
			return "nobody cancelled it"
		}
	case "RUNNER_GONE":
		if !harmed && !l.released[r.Runner] {
			return "nobody ended its runner"
		}
		if o.GoneReason == nil {
			return "nobody says why its runner went"
		}
	case "LOST":
		if !harmed {
			return "its agent was never killed"
		}
	default:
		return "nothing can have led to that"
	}
	return ""
}

// Judge takes over what a reader that came to the end found, the first time and
// every other time.
func (l *Ledger) Judge(r *Run, found Reading, by string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.told == nil {
		return
	}
	whole := (r.told.Outcome == "EXITED" || r.told.Outcome == "SIGNALED") && r.blocks != endless
	found.end(r.Program, whole)
	if found.silent > 0 {
		l.note(bytesSilent, found.silent, "program %s, read by %s: %+v", r.Key, by, found)
	}
	if found.repeated > 0 {
		l.note(bytesRepeated, found.repeated, "program %s, read by %s: %+v", r.Key, by, found)
	}
	if found.foreign > 0 {
		l.note(bytesForeign, found.foreign, "program %s, read by %s: %+v", r.Key, by, found)
	}
	lost := found.explained + found.declared
	harmed := l.hurt(r.Runner)
	if lost > 0 && !harmed && !l.fullSince(r.Asked) {
		l.note(bytesCauseless, lost, "program %s, read by %s: %+v", r.Key, by, found)
	}
	if whole && found.declared > 0 { // of one that was ended nobody else knows how much it had printed
		l.note(bytesCauseless, found.declared, "program %s, read by %s: said to be lost, though it came: %+v", r.Key, by, found)
	}
	if r.read != nil && !whole && found.extent() != r.read.extent() { // what it had printed nobody knows, but all who read it got as much
		l.note(bytesSilent, max(found.extent()-r.read.extent(), r.read.extent()-found.extent()), "program %s, read by %s: %+v, and before: %+v", r.Key, by, found, *r.read)
	}
	if r.read == nil {
		r.read = &found
		l.counts[BytesExpected] += found.came() + lost + found.silent
		if harmed {
			l.counts[bytesLostKilled] += lost
		} else {
			l.counts[bytesLostFull] += lost
		}
	}
}

// All returns the runs that have ended.
func (l *Ledger) All() []*Run {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*Run
	for _, r := range l.runs {
		if r.told != nil {
			all = append(all, r)
		}
	}
	return all
}
