// Package health has what clusters, the doctor and the server report about their state. These are findings
// of an examination, problems, runs of the attacks, events of removed runners, and counters of tasks.
package health

import "fmt"

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
