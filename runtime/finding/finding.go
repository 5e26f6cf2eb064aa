// Package finding is what an examination reports: one line for each thing it examined,
// with what to do where something is wrong.
package finding

import "fmt"

// A Status is how a finding is.
type Status string

// The statuses.
const (
	OK   Status = "OK"
	Warn Status = "WARN" // programs can be run, with a drawback
	Fail Status = "FAIL" // programs can't be run safely, or not at all
)

// A Finding is the result for one thing.
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

// Warning returns a finding with a drawback, and what to do about it.
func Warning(name, advice, format string, args ...any) Finding {
	return Finding{name, Warn, fmt.Sprintf(format, args...), advice}
}

// Failure returns a finding that prevents runners, and what to do about it.
func Failure(name, advice, format string, args ...any) Finding {
	return Finding{name, Fail, fmt.Sprintf(format, args...), advice}
}
