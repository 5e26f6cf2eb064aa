// Package health has what clusters, the doctor and the server report about their state. These are findings
// of an examination, problems, runs of the attacks, events of removed runners, and counters of tasks.
package health

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// A Status says how serious a finding is.
type Status string

// The statuses.
const (
	OK   Status = "OK"
	Warn Status = "WARN" // programs can run, with a drawback
	Fail Status = "FAIL" // programs can't run, or can't run safely
)

// A Finding is the result for one thing examined, with advice where something is wrong.
type Finding struct {
	Name    string `json:"name"`
	Status  Status `json:"status"`
	Message string `json:"message"`
	Advice  string `json:"advice,omitempty"` // what to do; "" with OK
}

// Fine returns a finding that is OK.
func Fine(name, format string, args ...any) Finding {
	return Finding{Name: name, Status: OK, Message: fmt.Sprintf(format, args...)}
}

// Warning returns a finding with a drawback, and advice.
func Warning(name, advice, format string, args ...any) Finding {
	return Finding{name, Warn, fmt.Sprintf(format, args...), advice}
}

// Failure returns a finding that prevents runners, and advice.
func Failure(name, advice, format string, args ...any) Finding {
	return Finding{name, Fail, fmt.Sprintf(format, args...), advice}
}

// Problems are the problems that a cluster reports in its Status: at most one per subject, in order of
// their beginning. Each new one is logged. Its methods are safe for concurrent use.
type Problems struct {
	log *zap.Logger

	mu  sync.Mutex // guards all
	all []runtime.Problem
}

// NewProblems returns a list with known problems, which aren't logged again.
func NewProblems(log *zap.Logger, known ...runtime.Problem) *Problems {
	return &Problems{log: log, all: known}
}

// Report adds a problem, or replaces the message of its subject, until Resolve. It logs new
// messages only.
func (l *Problems) Report(subject, message string) {
	if l.put(subject, message) {
		l.log.Error("a problem needs attention; `health` shows it until it is resolved", zap.String("subject", subject), zap.String("problem", message))
	}
}

// put sets the problem of a subject. It reports whether the message is new.
func (l *Problems) put(subject, message string) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.all, func(p runtime.Problem) bool { return p.Subject == subject })
	if i < 0 {
		l.all = append(l.all, runtime.Problem{Subject: subject, Message: message, Since: time.Now()})
		return true
	}
	news = l.all[i].Message != message
	l.all[i].Message = message
	return news
}

// Resolve removes the problem of a subject, if there is one.
func (l *Problems) Resolve(subject string) {
	l.ResolveFunc(func(known string) bool { return known == subject })
}

// ResolveFunc removes the problems of all subjects for which resolved returns true.
func (l *Problems) ResolveFunc(resolved func(subject string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, func(p runtime.Problem) bool { return resolved(p.Subject) })
}

// All returns a copy of the list.
func (l *Problems) All() []runtime.Problem {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}
