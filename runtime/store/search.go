package store

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// SearchedBytes is how much of a command line is searched, in bytes.
const SearchedBytes = 4096

// Terms are what an execution is found by: a row of execution_search.
type terms struct {
	queued  int64
	outcome runtime.Outcome
	passed  *int64
	labels  string
	command string
}

func termsOf(x runtime.Execution) terms {
	t := terms{queued: nanoseconds(x.Marks.QueuedAt), command: searched(x.CommandLine())}
	if x.State == runtime.ExecutionFinished {
		t.outcome, t.passed = x.End.Outcome, new(int64)
		if x.Passed() {
			*t.passed = 1
		}
	}
	for _, l := range x.Labels {
		t.labels += labelLine(runtime.LabelFilter{Name: l.Name, Value: &l.Value})
	}
	return t
}

// labelLine returns the line of a label, or the beginning that those of any value share. A name that
// is quoted has no line's end, and no quotation mark that isn't escaped: nothing else contains the line.
func labelLine(of runtime.LabelFilter) string {
	line := "\n" + strconv.Quote(of.Name) + "="
	if of.Value != nil {
		line += strconv.Quote(*of.Value)
	}
	return line
}

// searched returns what of a command line is searched: its beginning, as text that any database takes.
func searched(line string) string {
	beginning := strings.ToLower(line[:min(len(line), SearchedBytes)])
	return strings.ToValidUTF8(strings.ReplaceAll(beginning, "\x00", ""), "")
}

// nanoseconds returns a time since 1970, or the nearest one that can be stored.
func nanoseconds(at time.Time) int64 {
	switch {
	case at.Before(time.Unix(0, math.MinInt64)):
		return math.MinInt64
	case at.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	}
	return at.UnixNano()
}

// search returns the condition on execution_search, whose parameters begin with a number; "": there is
// none.
func (q ExecutionFilter) search(first int) (where string, args []any) {
	var all []string
	add := func(condition string, arg any) {
		all = append(all, fmt.Sprintf(condition, first+len(args)))
		args = append(args, arg)
	}
	// Unlike LIKE it is the same in all databases: none folds cases, and nothing needs to be escaped.
	const contains = "%[1]s <> replace(%[1]s, $%%d, '')"
	if outcomes := slices.Compact(slices.Sorted(slices.Values(q.Outcomes))); len(outcomes) > 0 {
		all = append(all, "outcome IN ("+parameters(first, len(outcomes))+")")
		for _, o := range outcomes {
			args = append(args, string(o))
		}
	}
	if q.Failed != nil {
		passed := 1
		if *q.Failed {
			passed = 0
		}
		add("passed = $%d", passed)
	}
	for _, l := range q.Labels {
		add(fmt.Sprintf(contains, "labels"), labelLine(l))
	}
	if q.Command != "" {
		add(fmt.Sprintf(contains, "command"), strings.ToLower(q.Command))
	}
	if !q.From.IsZero() {
		add("queued >= $%d", nanoseconds(q.From))
	}
	if !q.To.IsZero() {
		add("queued < $%d", nanoseconds(q.To))
	}
	return strings.Join(all, " AND "), args
}
