package request

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/store"
)

// Runners selects runners; a zero field selects all.
type Runners struct {
	Sees          func(runtime.Runner) bool // nil means all
	EnvironmentID runtime.EnvironmentID
	States        []runtime.RunnerState
	HeldBy        string                // text in the claim's holder or in a label as name=value; ignores case
	Labels        []runtime.LabelFilter // of the claim: all match
	From          time.Time             // created then or later
	To            time.Time             // created earlier
	NewestFirst   bool
}

// Validate returns INVALID_INPUT if nothing can match.
func (f Runners) Validate() error {
	return validateFilter(f.Labels, f.From, f.To)
}

// Matches reports whether all of the filter's conditions hold for r.
func (f Runners) Matches(r runtime.Runner) bool {
	if f.Sees != nil && !f.Sees(r) {
		return false
	}
	if f.EnvironmentID != "" && r.Environment.ID != f.EnvironmentID {
		return false
	}
	if len(f.States) > 0 && !slices.Contains(f.States, r.State) {
		return false
	}
	if !f.From.IsZero() && r.CreatedAt.Before(f.From) || !f.To.IsZero() && !r.CreatedAt.Before(f.To) {
		return false
	}
	if slices.ContainsFunc(f.Labels, func(l runtime.LabelFilter) bool { return !l.MatchesAny(r.Claim.Labels) }) {
		return false
	}
	names := func(text string) bool { return strings.Contains(strings.ToLower(text), strings.ToLower(f.HeldBy)) }
	return f.HeldBy == "" || names(r.Claim.Holder) || slices.ContainsFunc(r.Claim.Labels, func(l runtime.Label) bool { return names(l.Name + "=" + l.Value) })
}

// Executions selects executions; a zero field selects all.
type Executions = store.ExecutionFilter

// validateFilter checks the conditions that the filters of runners and executions share.
func validateFilter(labels []runtime.LabelFilter, from, to time.Time) error {
	if !to.IsZero() && !from.IsZero() && !to.After(from) {
		return runtime.Invalid("to", "must be after from, %s", from.UTC().Format(time.RFC3339Nano))
	}
	return runtime.ValidateLabelFilters(labels)
}

// maxSearchedText bounds a searched text. SQLite compares it at each position of each command.
const maxSearchedText = 256

// CheckExecutions returns INVALID_INPUT if nothing can match.
func CheckExecutions(f Executions) error {
	return cmp.Or(text("command", f.Command, maxSearchedText), text("text", f.Text, maxSearchedText), validateFilter(f.Labels, f.From, f.To))
}

// text returns INVALID_INPUT for field if a text is longer than most bytes, or contains NUL.
func text(field, value string, most int) error {
	if len(value) > most || strings.ContainsRune(value, 0) {
		return runtime.Invalid(field, "must be at most %d bytes without NUL", most)
	}
	return nil
}

// Batches selects batches; a zero field selects all.
type Batches = store.BatchFilter

// Waiting selects waiting claims; a zero field selects all.
type Waiting struct {
	Tenant        *runtime.TenantID
	EnvironmentID runtime.EnvironmentID
}
