package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/fairqueue"
	"github.com/rockpool/rockpool/test/wait"
)

var searchBegan = time.Unix(1_800_000_000, 5)

// numbered returns an id that was made a moment before searchBegan.
func numbered(n string) runtime.ExecutionID {
	return runtime.ExecutionID(firstID(searchBegan.Add(-time.Second)) + "-7000-8000-" + n)
}

// searchable returns executions of all kinds, by id.
func searchable() []runtime.Execution {
	label := func(name, value string) runtime.Label { return runtime.Label{Name: name, Value: value} }
	exited := func(code int) runtime.End { return runtime.End{Outcome: runtime.OutcomeExited, ExitCode: code} }
	all := []runtime.Execution{
		{ID: numbered("1"), Tenant: "x", Command: []string{"/bin/sh", "-c", "echo ÄPFEL"}, Shell: true, State: runtime.ExecutionFinished, End: exited(0),
			Labels: []runtime.Label{label("user", "ada"), label("course", "a\x00\"\n%_")}},
		{ID: numbered("2"), Tenant: "x", Command: []string{"python3", "a b.py"}, State: runtime.ExecutionFinished, End: exited(1), Labels: []runtime.Label{label("user", "Ada")}},
		{ID: numbered("3"), Command: []string{strings.Repeat("x", SearchedBytes-2), "beyond"}, State: runtime.ExecutionFinished,
			End: runtime.End{Outcome: runtime.OutcomeTimeLimit}, Labels: []runtime.Label{label("user", "ada"), label("user", "bob")}},
		{ID: numbered("4"), Command: []string{"100%", "\x00"}, State: runtime.ExecutionRunning, Labels: []runtime.Label{label("auser", "ada"), label("user", "adam")}},
	}
	for i := range all {
		all[i].RunnerID, all[i].EnvironmentID = runtime.RunnerID(fmt.Sprint("r", i+1)), runtime.EnvironmentID(fmt.Sprint("e", i+1))
		all[i].Timestamps.QueuedAt = searchBegan.Add(time.Duration(i))
	}
	return all
}

func ended(t *testing.T, s *Store, all []runtime.Execution) {
	t.Helper()
	for _, x := range all {
		pending := x
		pending.State, pending.End = runtime.ExecutionPending, runtime.End{}
		if _, _, err := s.AddExecution(t.Context(), pending, []byte("start")); err != nil {
			t.Fatal(err)
		}
		var err error
		if x.State == runtime.ExecutionFinished {
			_, err = s.FinishExecution(t.Context(), x, 0)
		} else {
			err = s.PutExecution(t.Context(), x, nil, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func found(t *testing.T, s *Store, q ExecutionFilter) string {
	t.Helper()
	page, err := s.Executions(t.Context(), q, 10, "")
	var ids []string
	for _, x := range page.Executions {
		ids = append(ids, string(x.ID[len(numbered("")):]))
	}
	if err != nil || page.Total != len(ids) {
		t.Errorf("%d of %d: %v", len(ids), page.Total, err)
	}
	return strings.Join(ids, " ")
}

// An execution whose output isn't the expected one has failed, although it exited with 0.
func TestWrongOutputsFail(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	passed := searchable()[0]
	var all []runtime.Execution
	for _, matches := range []bool{true, false} {
		passed.ID, passed.Comparison = numbered(fmt.Sprint(len(all)+1)), &runtime.Comparison{Matches: &matches}
		all = append(all, passed)
	}
	ended(t, s, all)
	for want, failed := range map[string]bool{"1": false, "2": true} {
		if got := found(t, s, ExecutionFilter{Failed: &failed}); got != want {
			t.Errorf("failed %v: %q, not %q", failed, got, want)
		}
	}
}

func searches(at time.Time) map[string]struct {
	q    ExecutionFilter
	want string
} {
	label := func(name string, value ...string) []runtime.LabelFilter {
		f := runtime.LabelFilter{Name: name}
		if len(value) > 0 {
			f.Value = &value[0]
		}
		return []runtime.LabelFilter{f}
	}
	return map[string]struct {
		q    ExecutionFilter
		want string
	}{
		"all":                                 {ExecutionFilter{}, "1 2 3 4"},
		"failed":                              {ExecutionFilter{Failed: new(true)}, "2 3"},
		"not failed":                          {ExecutionFilter{Failed: new(false)}, "1"},
		"failed, newest first":                {ExecutionFilter{Failed: new(true), NewestFirst: true}, "3 2"},
		"outcomes":                            {ExecutionFilter{Outcomes: []runtime.Outcome{runtime.OutcomeTimeLimit, runtime.OutcomeLost, runtime.OutcomeTimeLimit}}, "3"},
		"a label, which is case-sensitive":    {ExecutionFilter{Labels: label("user", "ada")}, "1 3"},
		"a label of any value":                {ExecutionFilter{Labels: label("user")}, "1 2 3 4"},
		"a label's name, whole":               {ExecutionFilter{Labels: label("auser")}, "4"},
		"a part of a label's name":            {ExecutionFilter{Labels: label("use")}, ""},
		"no value":                            {ExecutionFilter{Labels: label("user", "")}, ""},
		"any text as a label's value":         {ExecutionFilter{Labels: label("course", "a\x00\"\n%_")}, "1"},
		"no pattern":                          {ExecutionFilter{Labels: label("course", "a%")}, ""},
		"two labels":                          {ExecutionFilter{Labels: append(label("user", "ada"), label("user", "bob")...)}, "3"},
		"text of any case":                    {ExecutionFilter{Command: "äPFel"}, "1"},
		"text without wrappers":               {ExecutionFilter{Command: "-c"}, ""},
		"text as it is shown":                 {ExecutionFilter{Command: "N3 'a b.PY'"}, "2"},
		"no pattern as text":                  {ExecutionFilter{Command: "0%"}, "4"},
		"text at the end of what is searched": {ExecutionFilter{Command: "x b"}, "3"},
		"text beyond what is searched":        {ExecutionFilter{Command: "x be"}, ""},
		"text in a label, or a command":       {ExecutionFilter{Text: "ADA"}, "1 2 3 4"},
		"text as a label is written":          {ExecutionFilter{Text: "R=aDa"}, "1 2 3 4"},
		"text of a label's end":               {ExecutionFilter{Text: "\"\n%_"}, "1"},
		"text over labels":                    {ExecutionFilter{Text: "ada\nuser"}, ""},
		"a quote that a label lacks":          {ExecutionFilter{Text: "user\"=\"ada"}, ""},
		"text of a command, not of a label":   {ExecutionFilter{Text: "Äpfel"}, "1"},
		"text of neither":                     {ExecutionFilter{Text: "eve"}, ""},
		"from then on":                        {ExecutionFilter{From: at.Add(1)}, "2 3 4"},
		"until before then":                   {ExecutionFilter{To: at.Add(1)}, "1"},
		"a time":                              {ExecutionFilter{From: at.Add(1), To: at.Add(3)}, "2 3"},
		"all times":                           {ExecutionFilter{From: time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC), To: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, "1 2 3 4"},
		"all of it, and a tenant":             {ExecutionFilter{Tenant: new(runtime.TenantID("x")), Failed: new(true), Outcomes: []runtime.Outcome{runtime.OutcomeExited}, Labels: label("user"), Command: "py", From: at, States: []runtime.ExecutionState{runtime.ExecutionFinished}}, "2"},
		"a runner's":                          {ExecutionFilter{RunnerID: "r2", Failed: new(true)}, "2"},
		"an environment's":                    {ExecutionFilter{EnvironmentID: "e1", Labels: label("user")}, "1"},
		"some that haven't ended":             {ExecutionFilter{States: []runtime.ExecutionState{runtime.ExecutionPending, runtime.ExecutionRunning}, Labels: label("user")}, "4"},
		"some that run or have ended":         {ExecutionFilter{States: []runtime.ExecutionState{runtime.ExecutionFinished, runtime.ExecutionRunning}, From: at.Add(2)}, "3 4"},
		"some that run":                       {ExecutionFilter{States: []runtime.ExecutionState{runtime.ExecutionRunning}, Labels: label("user")}, "4"},
		"some that wait":                      {ExecutionFilter{States: []runtime.ExecutionState{runtime.ExecutionPending}, Labels: label("user")}, ""},
		"some of any state":                   {ExecutionFilter{States: []runtime.ExecutionState{runtime.ExecutionPending, runtime.ExecutionFinished, runtime.ExecutionRunning}, From: at.Add(2)}, "3 4"},
		"some that have ended":                {ExecutionFilter{States: []runtime.ExecutionState{runtime.ExecutionFinished}, From: at.Add(2)}, "3"},
		"another tenant's":                    {ExecutionFilter{Tenant: new(runtime.TenantID("")), Labels: label("course")}, ""},
	}
}

func TestExecutionsAreSearched(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	all := searchable()
	ended(t, s, all)
	for name, test := range searches(all[0].Timestamps.QueuedAt) {
		if got := found(t, s, test.q); got != test.want {
			t.Errorf("%s: %q, not %q", name, got, test.want)
		}
	}
	if err := s.DeleteExecutions(t.Context(), []runtime.ExecutionID{numbered("1"), numbered("2"), numbered("4")}, time.Now()); err != nil {
		t.Fatal(err)
	}
	var left int // the row of one that runs stays, as it does
	if err := s.db.QueryRow(t.Context(), "SELECT count(*) FROM execution_search").Scan(&left); err != nil || left != 2 {
		t.Error(left, err)
	}
	if got := found(t, s, ExecutionFilter{Labels: []runtime.LabelFilter{{Name: "user"}}}); got != "3 4" {
		t.Error("after others were deleted:", got)
	}
}

// TestACancelledExecutionDidNotFail checks this in agreement with Activity; a running execution
// didn't fail either.
func TestACancelledExecutionDidNotFail(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	ended(t, s, []runtime.Execution{
		{ID: numbered("1"), State: runtime.ExecutionFinished, End: runtime.End{Outcome: runtime.OutcomeCancelled}},
		{ID: numbered("2"), State: runtime.ExecutionFinished, End: runtime.End{Outcome: runtime.OutcomeLost}},
		{ID: numbered("3"), State: runtime.ExecutionRunning},
	})
	for want, failed := range map[string]bool{"2": true, "": false} {
		if got := found(t, s, ExecutionFilter{Failed: &failed}); got != want {
			t.Errorf("failed %t: %q, want %q", failed, got, want)
		}
	}
}

// TestConcurrentSearchesWait checks that their tenants take turns, and that searches end with their
// callers.
func TestConcurrentSearchesWait(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	var leave []func()
	for range searchesAtOnce {
		l, err := s.searching.Waiter("", "", 0).Enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, l)
	}
	if _, err := s.Executions(t.Context(), ExecutionFilter{}, 1, ""); err != nil {
		t.Error("one that searches nothing:", err)
	}
	gone := errors.New("the caller left")
	ctx, cancel := context.WithCancelCause(t.Context())
	search := func(ctx context.Context, tenant runtime.TenantID) <-chan error {
		waiting, result := s.searching.Waiting(), make(chan error, 1)
		go func() {
			_, err := s.Executions(ctx, ExecutionFilter{Tenant: &tenant, Failed: new(true)}, 1, "")
			result <- err
		}()
		wait.For(t, "the search waits", func() bool { return s.searching.Waiting() > waiting })
		return result
	}
	ends, waits := search(ctx, "a"), search(t.Context(), "b")
	cancel(gone)
	if err := wait.Receive(t, ends, "the end of a search whose caller left"); !errors.Is(err, gone) {
		t.Errorf("got %v, want %v", err, gone)
	}
	leave[0]()
	if err := wait.Receive(t, waits, "the end of a search"); err != nil {
		t.Error(err)
	}
	for _, l := range leave[1:] {
		l()
	}
}

// TestConcurrentListsWait, because nothing counts the memory of a page while it is read. A list that
// waits ends with its caller.
func TestConcurrentListsWait(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	var leave []func()
	for i := range listsAtOnce {
		l, err := s.listing.Waiter(runtime.TenantID(fmt.Sprint("t", i)), "", 0).Enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, l)
	}
	if _, err := s.Executions(t.Context(), ExecutionFilter{Failed: new(true)}, 1, ""); err != nil {
		t.Error("a search:", err)
	}
	gone := errors.New("the caller left")
	lists := map[string]func(ctx context.Context) error{
		"executions": func(ctx context.Context) error { _, err := s.Executions(ctx, ExecutionFilter{}, 1, ""); return err },
		"cases": func(ctx context.Context) error {
			_, _, err := s.BatchExecutions(ctx, runtime.Batch{ID: "b"}, 0, 1)
			return err
		},
		"audit log": func(ctx context.Context) error { _, _, err := s.Audit(ctx, AuditFilter{}, 1, ""); return err },
	}
	results := map[string]chan error{}
	for name, list := range lists {
		ctx, cancel := context.WithCancelCause(t.Context())
		ended, waiting := make(chan error, 1), s.listing.Waiting()
		go func() { ended <- list(ctx) }()
		wait.For(t, name+" waits", func() bool { return s.listing.Waiting() > waiting })
		cancel(gone)
		if err := wait.Receive(t, ended, name); !errors.Is(err, gone) {
			t.Errorf("%s without its caller: got %v, want %v", name, err, gone)
		}
		result := make(chan error, 1)
		results[name] = result
		go func() { result <- list(t.Context()) }()
	}
	for _, l := range leave {
		l()
	}
	for name, ended := range results {
		if err := wait.Receive(t, ended, name); err != nil {
			t.Errorf("%s after others have ended: %v", name, err)
		}
	}
}

// BenchmarkSearch must take some ten milliseconds.
func BenchmarkSearch(b *testing.B) {
	const most = 100_000
	s := open(b, filepath.Join(b.TempDir(), "db"))
	kept(b, s, most)
	began := time.Unix(1_800_000_000, 0)
	for name, q := range map[string]ExecutionFilter{
		"none":        {},
		"failed":      {Failed: new(true)},
		"label":       {Labels: []runtime.LabelFilter{{Name: "user", Value: new("u7")}}},
		"command":     {Command: "prog7.py"},
		"hour":        {From: began.Add((most - 3600) * time.Second)},
		"all":         {Failed: new(true), Labels: []runtime.LabelFilter{{Name: "user"}}, Command: "prog", From: began},
		"runs":        {States: []runtime.ExecutionState{runtime.ExecutionRunning}, Labels: []runtime.LabelFilter{{Name: "user"}}},
		"ended":       {States: []runtime.ExecutionState{runtime.ExecutionFinished}, Labels: []runtime.LabelFilter{{Name: "user"}}},
		"environment": {EnvironmentID: "python", Labels: []runtime.LabelFilter{{Name: "user"}}},
		"runner":      {RunnerID: "01930000-0000-7000-9000-000000000007", Labels: []runtime.LabelFilter{{Name: "user"}}},
		"newcomer":    {Tenant: new(runtime.TenantID("none")), Labels: []runtime.LabelFilter{{Name: "user"}}},
		"tenant":      {Tenant: new(runtime.TenantID("t3")), Labels: []runtime.LabelFilter{{Name: "user"}}},
	} {
		b.Run(name, func(b *testing.B) {
			q.NewestFirst = true
			for b.Loop() {
				if page, err := s.Executions(b.Context(), q, 100, ""); err != nil {
					b.Fatal(len(page.Executions), err)
				}
			}
		})
	}
}

// BenchmarkExecution stores a new execution, and its end.
func BenchmarkExecution(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "db"))
	kept(b, s, 10_000)
	i := 0
	var before, after unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &before)
	for b.Loop() {
		i++
		x := execution(i)
		x.Command, x.Labels = []string{"python3", "main.py"}, []runtime.Label{{Name: "user", Value: "ada"}, {Name: "course", Value: "c"}}
		if _, _, err := s.AddExecution(b.Context(), x, []byte("start")); err != nil {
			b.Fatal(err)
		}
		x.State, x.End.Outcome = runtime.ExecutionFinished, runtime.OutcomeExited
		if _, err := s.FinishExecution(b.Context(), x, 1000); err != nil {
			b.Fatal(err)
		}
	}
	_ = unix.Getrusage(unix.RUSAGE_SELF, &after)
	spent := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(spent)/float64(b.N), "cpu-ns/op")
}

// kept stores finished executions of ten tenants, of which each tenth failed.
func kept(b *testing.B, s *Store, most int) {
	b.Helper()
	began := time.Unix(1_800_000_000, 0)
	const batch = 64 // writes that share a transaction
	for at := 0; at < most; at += batch {
		var group sync.WaitGroup
		for i := at; i < min(at+batch, most); i++ {
			x := runtime.Execution{
				ID: runtime.ExecutionID(fmt.Sprintf("%s-7000-8000-%012d", firstID(began.Add(time.Duration(i)*time.Second)), i)), RunnerID: runtime.RunnerID(fmt.Sprintf("01930000-0000-7000-9000-%012d", i/10)),
				EnvironmentID: "python", Tenant: runtime.TenantID(fmt.Sprint("t", i%10)), Command: []string{"python3", fmt.Sprintf("prog%d.py", i%1000)},
				Labels: []runtime.Label{{Name: "user", Value: fmt.Sprint("u", i%1000)}, {Name: "course", Value: "algorithms"}},
				State:  runtime.ExecutionFinished, End: runtime.End{Outcome: runtime.OutcomeExited, Message: "exited with code 0"}, Input: strings.Repeat("f", 64),
			}
			if i/1000%10 == 0 {
				x.End.ExitCode = 1
			}
			x.Timestamps.QueuedAt = began.Add(time.Duration(i) * time.Second)
			x.Timestamps.StartedAt, x.Timestamps.FirstOutputAt, x.Timestamps.FinishedAt = x.Timestamps.QueuedAt, x.Timestamps.QueuedAt, x.Timestamps.QueuedAt
			group.Go(func() {
				if _, _, err := s.AddExecution(b.Context(), x, []byte("start")); err != nil {
					b.Error(err)
				}
				if _, err := s.FinishExecution(b.Context(), x, 1000); err != nil {
					b.Error(err)
				}
			})
		}
		group.Wait()
	}
}

// TestListsOfOneTenantLeaveRoom checks that one tenant's lists leave room for those of others, and for
// lists for all tenants.
func TestListsOfOneTenantLeaveRoom(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	tenant := runtime.DefaultTenant
	for range listsAtOnce / 2 {
		leave, err := enter(t.Context(), s.listing, &tenant)
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
	}
	gone := errors.New("the caller left")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	waits := make(chan error, 1)
	go func() {
		_, err := s.Executions(ctx, ExecutionFilter{Tenant: &tenant}, 1, "")
		waits <- err
	}()
	wait.For(t, "one more list of this tenant waits", func() bool { return s.listing.Waiting() == 1 })
	if _, err := s.Executions(t.Context(), ExecutionFilter{}, 1, ""); err != nil {
		t.Error("a list for all tenants:", err)
	}
	if _, _, err := s.BatchExecutions(t.Context(), runtime.Batch{ID: "b", Tenant: "other"}, 0, 1); err != nil {
		t.Error("another tenant's list:", err)
	}
	cancel(gone)
	if err := wait.Receive(t, waits, "the end of the list whose caller left"); !errors.Is(err, gone) {
		t.Errorf("the tenant's fifth list: got %v, want it to wait", err)
	}
}

// TestCallersOfATenantTakeTurns has a list of one caller wait behind two of another caller.
func TestCallersOfATenantTakeTurns(t *testing.T) {
	limiter := fairqueue.NewLimiter(1)
	leave, err := enter(t.Context(), limiter, nil)
	if err != nil {
		t.Fatal(err)
	}
	order := make(chan string, 3)
	for i, caller := range []string{"a", "a", "b"} {
		go func() {
			leave, err := enter(access.With(t.Context(), access.Principal{ID: caller}), limiter, nil)
			if err != nil {
				t.Error(err)
				return
			}
			order <- caller
			leave()
		}()
		wait.For(t, "it waits", func() bool { return limiter.Waiting() == i+1 })
	}
	leave()
	var got []string
	for range 3 {
		got = append(got, wait.Receive(t, order, "a turn"))
	}
	if strings.Join(got, " ") != "a b a" {
		t.Errorf("got turns of %q, want a, b, a", got)
	}
}

// TestListsAreReadInRounds checks that rounds of two rows make the same pages.
func TestListsAreReadInRounds(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	addBatch(t, s, runtime.Batch{ID: "b", CaseCount: 7}, "1", "2", "3", "4", "5", "6", "7")
	for i := range 7 {
		execute(t, s, runtime.ExecutionID(fmt.Sprint("x", i)), "b", i)
		if err := s.AppendAudit(t.Context(), []AuditRow{{ID: string(numbered(fmt.Sprint(i))), At: searchBegan, Value: []byte("v")}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, s.roundRows = range []int{1, 2, 3, 7, 100} {
		for first := 1; first <= 8; first++ {
			for _, newest := range []bool{false, true} {
				at := fmt.Sprintf("rounds of %d, a page of %d, newest first %t", s.roundRows, first, newest)
				number := func(i int) string {
					if newest {
						i = 6 - i
					}
					return fmt.Sprint(i)
				}
				page, err := s.Executions(t.Context(), ExecutionFilter{NewestFirst: newest}, first, "")
				if err != nil || len(page.Executions) != min(first, 7) || page.More != (first < 7) || page.Total != 7 || len(page.Sizes) != len(page.Executions) {
					t.Errorf("%s: %d of %d executions, more %t: %v", at, len(page.Executions), page.Total, page.More, err)
				}
				for i, x := range page.Executions {
					if value, _ := json.Marshal(x); string(x.ID) != "x"+number(i) || page.Sizes[i] != len(value) {
						t.Errorf("%s: position %d has %s with %d bytes", at, i, x.ID, page.Sizes[i])
					}
				}
				rows, more, err := s.Audit(t.Context(), AuditFilter{NewestFirst: newest}, first, "")
				if err != nil || len(rows) != min(first, 7) || more != (first < 7) {
					t.Errorf("%s: %d entries, more %t: %v", at, len(rows), more, err)
				}
				for i, r := range rows {
					if r.ID != string(numbered(number(i))) {
						t.Errorf("%s: position %d has the entry %s", at, i, r.ID)
					}
				}
			}
			cases, until, err := s.BatchExecutions(t.Context(), runtime.Batch{ID: "b"}, 0, first)
			if err != nil || until != first || len(cases) != min(first, 7) {
				t.Errorf("%d cases in rounds of %d: got %d until %d: %v", first, s.roundRows, len(cases), until, err)
			}
		}
	}
}
