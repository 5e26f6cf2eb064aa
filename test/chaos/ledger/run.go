package ledger

import (
	"fmt"
	"time"
)

// A Run is one execution of a program, as its client knows it.
type Run struct {
	Program
	Runner    string
	Asked     time.Time // time of the first request
	cancelled bool      // a cancel was sent, answered or not
	ID        string    // "" until a start was answered
	told      *Outcome  // the first outcome that a server reported
	read      *Reading  // of the first reader that reached the end
}

// An Outcome is an execution's end as a server reports it.
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

// Begin records a run before its first request.
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
		l.note(startedTwice, 1, "program %s is execution %s, but was %s before", r.Key, id, r.ID)
	}
	r.ID = id
}

// Cancel records that a cancel is about to be sent.
func (l *Ledger) Cancel(r *Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.cancelled = true
}

// Ended judges an end that a server reports: the first time whether it is possible, then whether it
// is still the same.
func (l *Ledger) Ended(r *Run, o Outcome) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.told != nil {
		if r.told.String() != o.String() {
			l.note(ChangedOutcomes, 1, "program %s ended as %s, but as %s before", r.Key, o, *r.told)
		}
		return
	}
	r.told = &o
	if o.GoneReason != nil {
		l.counts["runners gone: "+*o.GoneReason]++
	}
	l.counts["ended: "+o.Outcome]++
	if o.Outcome == "EXITED" && o.ExitCode != nil && *o.ExitCode == alreadyRan {
		l.note(startedTwice, 1, "program %s was started a second time", r.Key)
		return
	}
	if why := l.impossible(r, o, now); why != "" {
		l.note(MadeUp, 1, "program %s (to end by %s, in runner %s) ended as %s: %s", r.Key, r.Ends, r.Runner, o, why)
	}
}

// impossible says why a run can't have ended so; "" if it can.
func (l *Ledger) impossible(r *Run, o Outcome, now time.Time) string {
	harmed := l.hurt(r.Runner)
	switch o.Outcome {
	case "EXITED", "SIGNALED":
		switch {
		case r.blocks == endless:
			return "it never exits"
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

// Judge records what a reader found when it reached the end, each time.
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
	if whole && found.declared > 0 { // only its readers know how much an ended program had printed
		l.note(bytesCauseless, found.declared, "program %s, read by %s: reported as lost, but it arrived: %+v", r.Key, by, found)
	}
	if r.read != nil && !whole && found.extent() != r.read.extent() { // nobody knows how much it had printed, but all readers must get the same amount
		l.note(bytesSilent, max(found.extent()-r.read.extent(), r.read.extent()-found.extent()), "program %s, read by %s: %+v, but %+v before", r.Key, by, found, *r.read)
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
