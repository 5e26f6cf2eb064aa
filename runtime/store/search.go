package store

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/store/database"
)

// SearchedBytes bounds the searched part of a command line, in bytes.
const SearchedBytes = 4096

// searchesAtOnce bounds concurrent searches, since each may read a row of every execution. Others
// wait, and the tenants whose executions they search take turns. This leaves connections to other
// reads.
const searchesAtOnce = 3

// terms are what an execution is found by: a row of execution_search.
type terms struct {
	execution   runtime.ExecutionID
	environment runtime.EnvironmentID
	tenant      runtime.TenantID
	queued      int64
	outcome     runtime.Outcome
	failed      any // nil if it hasn't ended, or was cancelled
	labels      string
	command     string
}

func termsOf(x runtime.Execution) terms {
	t := terms{execution: x.ID, environment: x.EnvironmentID, tenant: x.Tenant, queued: nanoseconds(x.Timestamps.QueuedAt), command: searched(x.CommandLineStart(SearchedBytes))}
	t.outcome, t.failed = endOf(x)
	for _, l := range x.Labels {
		t.labels += labelLine(runtime.LabelFilter{Name: l.Name, Value: &l.Value})
	}
	return t
}

// putTerms stores an execution's terms, or updates those of its end.
func putTerms(tx *database.Tx, t terms) error {
	_, err := tx.Exec(`INSERT INTO execution_search (execution, environment, tenant, queued, outcome, failed, labels, command) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (execution) DO UPDATE SET outcome = excluded.outcome, failed = excluded.failed`,
		t.execution, t.environment, string(t.tenant), t.queued, string(t.outcome), t.failed, t.labels, t.command)
	return err
}

// endOf returns the terms that an execution gets at its end.
func endOf(x runtime.Execution) (outcome runtime.Outcome, failed any) {
	switch {
	case x.Failed():
		failed = 1
	case x.Accepted():
		failed = 0
	}
	if x.State == runtime.ExecutionFinished {
		outcome = x.End.Outcome
	}
	return outcome, failed
}

// termBytes returns roughly how many bytes an execution's terms use, without building them.
func termBytes(x runtime.Execution) (sum int64) {
	for _, argument := range x.Command {
		sum += int64(len(argument)) + 1
	}
	sum = min(sum, SearchedBytes)
	for _, l := range x.Labels {
		sum += int64(len(l.Name)+len(l.Value)) + 6
	}
	return sum
}

// labelLine returns the line of a label or, without a value, the prefix shared by all values. A
// quoted name contains no newline and no unescaped quotation mark, so nothing else contains the
// line.
func labelLine(of runtime.LabelFilter) string {
	line := "\n" + strconv.Quote(of.Name) + "="
	if of.Value != nil {
		line += strconv.Quote(*of.Value)
	}
	return line
}

// inLabels returns a text as it occurs in the lines of labels, with ASCII in lower case, like both
// databases' lower().
func inLabels(text string) string {
	quoted := strconv.Quote(text)
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, quoted[1:len(quoted)-1])
}

// searched returns the searchable form of a command line, which every database accepts as text.
func searched(line string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(strings.ToLower(line), "\x00", ""), "")
}

// nanoseconds returns a time in Unix nanoseconds, or the nearest one that can be stored.
func nanoseconds(at time.Time) int64 {
	switch {
	case at.Before(time.Unix(0, math.MinInt64)):
		return math.MinInt64
	case at.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	}
	return at.UnixNano()
}

// A selection is a query's tables and conditions. Its zero value has none.
type selection struct {
	from string
	id   string // the column that orders the rows
	all  []string
	args []any
}

// where returns the conjunction of the conditions. Without conditions it selects all rows.
func (s *selection) where() string { return strings.Join(append([]string{"true"}, s.all...), " AND ") }

// add adds a condition in which %s stands for parameters.
func (s *selection) add(condition string, args ...any) {
	s.all = append(s.all, strings.Replace(condition, "%s", parameters(len(s.args)+1, len(args)), 1))
	s.args = append(s.args, args...)
}

// equal adds the condition that a column has a value, unless that is "".
func (s *selection) equal(column, value string) {
	if value != "" {
		s.add(column+" = %s", value)
	}
}

// ofTenant adds the condition that a column has a tenant, unless that is nil.
func (s *selection) ofTenant(column string, id *runtime.TenantID) {
	if id != nil {
		s.add(column+" = %s", string(*id))
	}
}

// page adds the condition that rows follow the one with an id, and returns all conditions with the order and
// the number of rows.
func (s *selection) page(newestFirst bool, most int, after string) string {
	comparison, order := " > %s", ""
	if newestFirst {
		comparison, order, after = " < %s", " DESC", cmp.Or(after, "\U0010FFFF") // above all ids
	}
	s.add(s.id+comparison, after)
	s.args = append(s.args, most)
	return fmt.Sprintf("%s ORDER BY %s%s LIMIT $%d", s.where(), s.id, order, len(s.args))
}

// selections returns the filter's selection, and an equivalent one that is faster to count.
func (q ExecutionFilter) selections() (all, counted selection) {
	if !q.searches() {
		all = selection{from: "executions e", id: "e.id"}
		q.among(&all)
		return all, all
	}
	searched := selection{from: "execution_search s", id: "s.execution"}
	q.search(&searched)
	// SQLite reads the narrow table first, in the order of its ids, and the other one for matches.
	// Otherwise it would use an index of the other one, and look up nearly all rows of the first by id.
	all = searched
	all.from += " CROSS JOIN executions e"
	if q.RunnerID != "" { // a runner has few executions
		all.from = "execution_search s JOIN executions e ON true"
	}
	all.add("e.id = s.execution")
	q.among(&all)
	if _, exact := q.ended(); q.RunnerID != "" || !exact {
		return all, all
	}
	return all, searched
}

// ended returns the condition on execution_search that the states imply, "" if there is none. exact reports that the
// condition also implies the states.
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

func (q ExecutionFilter) among(s *selection) {
	s.equal("e.runner", string(q.RunnerID))
	s.equal("e.environment", string(q.EnvironmentID))
	s.ofTenant("e.tenant", q.Tenant)
	if len(q.States) > 0 {
		s.add("e.state IN (%s)", distinct(q.States)...)
	}
}

// searches reports whether the filter has a condition that needs execution_search.
func (q ExecutionFilter) searches() bool {
	return len(q.Outcomes)+len(q.Labels) > 0 || q.Failed != nil || q.Command != "" || q.Text != "" || !q.From.IsZero() || !q.To.IsZero()
}

// idSlack bounds the difference between the time in an execution's id and its queue time. An id may
// be made before its claim waits, for at most an hour.
const idSlack = 2 * time.Hour

// search adds the conditions on execution_search, cheapest first.
func (q ExecutionFilter) search(s *selection) {
	s.equal("s.environment", string(q.EnvironmentID))
	s.ofTenant("s.tenant", q.Tenant)
	if !q.From.IsZero() {
		s.add("s.execution >= %s", firstID(q.From.Add(-idSlack)))
		s.add("s.queued >= %s", nanoseconds(q.From))
	}
	if !q.To.IsZero() {
		s.add("s.execution < %s", firstID(q.To.Add(idSlack)))
		s.add("s.queued < %s", nanoseconds(q.To))
	}
	if condition, _ := q.ended(); condition != "" {
		s.add(condition)
	}
	if len(q.Outcomes) > 0 {
		s.add("s.outcome IN (%s)", distinct(q.Outcomes)...)
	}
	if q.Failed != nil {
		s.add("s.failed = %s", bit(*q.Failed))
	}
	// instr, not LIKE: it distinguishes case on SQLite, and has no patterns.
	for _, l := range q.Labels {
		s.add("instr(s.labels, %s) > 0", labelLine(l))
	}
	if q.Command != "" {
		s.add("instr(s.command, %s) > 0", strings.ToLower(q.Command))
	}
	if q.Text != "" {
		// A label matches in the form name=value: the quotation marks between both are replaced.
		s.add("(instr(s.command, %s) > 0", strings.ToLower(q.Text))
		s.all[len(s.all)-1] += " OR instr(lower(replace(s.labels, '\"=\"', '=')), " + parameters(len(s.args)+1, 1) + ") > 0)"
		s.args = append(s.args, inLabels(q.Text))
	}
}

// distinct returns each value once, as parameters.
func distinct[T ~string](values []T) (args []any) {
	for _, v := range slices.Compact(slices.Sorted(slices.Values(values))) {
		args = append(args, string(v))
	}
	return args
}
