package store

import (
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

// inLabels returns a text as it stands in the lines of labels, in lower case. Both databases take that of ASCII only.
func inLabels(text string) string {
	quoted := strconv.Quote(text)
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, quoted[1:len(quoted)-1])
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

// A selection is of rows. Its zero value is empty.
type selection struct {
	from string
	id   string // the column by which it is sorted
	all  []string
	args []any
}

func (s *selection) where() string { return strings.Join(append([]string{"true"}, s.all...), " AND ") }

// add adds a condition, in which %s stands for parameters.
func (s *selection) add(condition string, args ...any) {
	s.all = append(s.all, strings.Replace(condition, "%s", parameters(len(s.args)+1, len(args)), 1))
	s.args = append(s.args, args...)
}

// selections return what a filter selects, and the same in the form that is faster to count.
func (q ExecutionFilter) selections() (all, counted selection) {
	searched := selection{from: "execution_search s", id: "s.execution"}
	q.search(&searched)
	if len(searched.all) == 0 {
		all = selection{from: "executions e", id: "e.id"}
		q.among(&all)
		return all, all
	}
	// SQLite reads the narrow table first, in the order of its ids, and the other for what matches. It
	// would use an index of the other, and look up nearly all of the first by their ids.
	all = searched
	all.from += " CROSS JOIN executions e"
	if q.RunnerID != "" { // which is of few
		all.from = "execution_search s JOIN executions e ON true"
	}
	all.add("e.id = s.execution")
	q.among(&all)
	if _, exact := q.ended(); q.RunnerID != "" || !exact {
		return all, all
	}
	return all, searched
}

// ended returns the condition on execution_search that the states imply; "": there is none. Exact reports
// that it implies the states.
func (q ExecutionFilter) ended() (condition string, exact bool) {
	states := slices.Compact(slices.Sorted(slices.Values(q.States)))
	switch finished := slices.Contains(states, runtime.ExecutionFinished); {
	case len(states) == 0:
		return "", true
	case !finished:
		return "s.outcome = ''", len(states) == 2
	case len(states) == 1:
		return "s.outcome <> ''", true
	default:
		return "", len(states) == 3
	}
}

// among adds the conditions on executions.
func (q ExecutionFilter) among(s *selection) {
	if q.RunnerID != "" {
		s.add("e.runner = %s", q.RunnerID)
	}
	if q.EnvironmentID != "" {
		s.add("e.environment = %s", q.EnvironmentID)
	}
	if q.Tenant != nil {
		s.add("e.tenant = %s", string(*q.Tenant))
	}
	if len(q.States) > 0 {
		s.add("e.state IN (%s)", distinct(q.States)...)
	}
}

// search adds the conditions on execution_search, if there is any that executions don't have.
func (q ExecutionFilter) search(s *selection) {
	if len(q.Outcomes) > 0 {
		s.add("s.outcome IN (%s)", distinct(q.Outcomes)...)
	}
	if q.Failed != nil {
		passed := 1
		if *q.Failed {
			passed = 0
		}
		s.add("s.passed = %s", passed)
	}
	if !q.From.IsZero() {
		s.add("s.queued >= %s", nanoseconds(q.From))
	}
	if !q.To.IsZero() {
		s.add("s.queued < %s", nanoseconds(q.To))
	}
	// Unlike with LIKE, SQLite doesn't take upper for lower case, and nothing is a pattern.
	for _, l := range q.Labels {
		s.add("instr(s.labels, %s) > 0", labelLine(l))
	}
	if q.Command != "" {
		s.add("instr(s.command, %s) > 0", strings.ToLower(q.Command))
	}
	if q.Text != "" {
		s.add("(instr(s.command, %s) > 0", strings.ToLower(q.Text))
		s.all[len(s.all)-1] += " OR instr(lower(replace(s.labels, '\"=\"', '=')), " + parameters(len(s.args)+1, 1) + ") > 0)"
		s.args = append(s.args, inLabels(q.Text))
	}
	if len(s.all) == 0 {
		return
	}
	if q.EnvironmentID != "" {
		s.add("s.environment = %s", q.EnvironmentID)
	}
	if q.Tenant != nil {
		s.add("s.tenant = %s", string(*q.Tenant))
	}
	if condition, _ := q.ended(); condition != "" {
		s.add(condition)
	}
}

// distinct returns each value once, as parameters.
func distinct[T ~string](values []T) (args []any) {
	for _, v := range slices.Compact(slices.Sorted(slices.Values(values))) {
		args = append(args, string(v))
	}
	return args
}
