package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/batch"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/test/refusal"
	"github.com/rockpool/rockpool/test/wait"
)

// awaitBatch returns a batch once it has ended.
func (b *bed) awaitBatch(t testing.TB, id runtime.BatchID) (ended runtime.Batch) {
	t.Helper()
	wait.For(t, "the batch ends", func() bool {
		var err error
		if ended, err = b.Batches.Get(asServer(t), id); err != nil {
			t.Fatal(err)
		}
		return ended.State == runtime.BatchFinished
	})
	return ended
}

// cases describes a batch's cases: state, exit status and output.
func (b *bed) cases(t testing.TB, of runtime.Batch) (words []string) {
	t.Helper()
	all, err := b.Batches.Cases(asServer(t), of, 0, of.CaseCount)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		word := string(c.State)
		if c.Execution != nil {
			output, _ := b.events(t, c.Execution.ID, "")
			word = fmt.Sprintf("%s %s %d %q", word, c.Execution.End.Outcome, c.Execution.End.ExitCode, output)
		}
		words = append(words, word)
	}
	return words
}

// follow reads a batch's events after a cursor up to the end.
func (b *bed) follow(t testing.TB, id runtime.BatchID, after string) (all []batch.Event) {
	t.Helper()
	r, err := b.Batches.Events(asServer(t), id, after)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		event, err := r.Next(asServer(t))
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, event)
	}
}

func inWords(all []batch.Event) (words []string) {
	for _, e := range all {
		switch {
		case e.Finished != nil:
			words = append(words, string(e.Finished.Outcome))
		case e.Event.Kind == events.Output:
			words = append(words, fmt.Sprintf("%d %q", e.Case, e.Event.Data))
		default:
			words = append(words, fmt.Sprintf("%d %d", e.Case, e.Event.Kind))
		}
	}
	return words
}

func TestBatchBuildsAndRunsEachCase(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 0)
	r := b.claim(t, "a")
	of := request.Batch{
		Build: &request.Build{Command: []string{"echo", "built"}},
		Cases: []request.Case{{Args: []string{"0"}, Stdin: []byte("unread")}, {Args: []string{"3"}, Bounds: batch.Bounds{TimeLimit: ptr(7)}}, {Args: []string{"0"}}},
	}
	started, first, err := b.Batches.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"exit"}, TimeLimit: ptr(5)}, of)
	if err != nil {
		t.Fatal(err)
	}
	if first.Command[0] != "echo" || first.Batch.Case != runtime.BuildCase {
		t.Errorf("%+v", first)
	}
	ended := b.awaitBatch(t, started.ID)
	if ended.Outcome != runtime.BatchCompleted || ended.Progress != (runtime.BatchProgress{Begun: 3, Ended: 3, Failed: 1}) || ended.EnvironmentID != "a" {
		t.Errorf("%+v", ended)
	}
	if got, want := b.cases(t, ended), []string{`PASSED EXITED 0 ""`, `FAILED EXITED 3 ""`, `PASSED EXITED 0 ""`}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	cases, err := b.Batches.Cases(asServer(t), ended, 1, 2)
	if err != nil || len(cases) != 1 || cases[0].Index != 1 || cases[0].Execution.TimeLimit.Seconds() != 7 || !slices.Equal(cases[0].Execution.Command, []string{"exit", "3"}) {
		t.Errorf("%+v, %v", cases, err)
	}
	build, err := b.Batches.Build(asServer(t), ended)
	if err != nil || build.ID != first.ID || !build.Passed() {
		t.Errorf("%+v, %v", build, err)
	}
	if _, there := b.runnerIndex.get(r.ID); !there {
		t.Error("the batch's end removed the caller's runner")
	}
	all, total, err := b.Batches.List(asServer(t), request.Batches{EnvironmentID: "a"}, 10, "")
	if err != nil || total != 1 || all[0].ID != ended.ID {
		t.Error(all, total, err)
	}
}

// TestWrongOutputFailsTheCase: in the counts, in the state of the case, and for StopOnFailure.
func TestWrongOutputFailsTheCase(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 0)
	r := b.claim(t, "a")
	in := request.Start{RunnerID: r.ID, Command: []string{"cat"}}
	of := request.Batch{Cases: []request.Case{
		{Stdin: []byte("1 2\n"), Expected: []byte("1 2")},
		{Stdin: []byte("1 2\n"), Expected: []byte("1 3")},
		{Stdin: []byte("1 2\n"), Expected: []byte("1 2"), Compare: runtime.CompareExact},
		{Stdin: []byte("1 2\n"), Expected: []byte(" 1\n2 "), Compare: runtime.CompareTokens},
		{Stdin: []byte("1 2\n"), Expected: []byte("1 2.0000001"), Compare: runtime.CompareNumbers},
		{Stdin: []byte("1 2\n"), Expected: []byte("1 2.1"), Compare: runtime.CompareNumbers, Tolerance: ptr(0.1)},
		{Stdin: []byte("1 2\n"), Expected: []byte("1 2.1"), Compare: runtime.CompareNumbers, Tolerance: ptr(0.01)},
		{Stdin: []byte("1 2\n"), Expected: []byte{}},
		{Stdin: []byte("1 2\n")},
	}}
	for stop, want := range map[bool]runtime.BatchProgress{false: {Begun: 9, Ended: 9, Failed: 4}, true: {Begun: 2, Ended: 2, Failed: 1}} {
		of.StopOnFailure = stop
		started, _, err := b.Batches.Start(asServer(t), in, of)
		if err != nil {
			t.Fatal(err)
		}
		ended := b.awaitBatch(t, started.ID)
		if ended.Progress != want || (ended.Outcome == runtime.BatchStopped) != stop {
			t.Errorf("stop %v: %+v", stop, ended)
		}
		if stop {
			continue
		}
		cases, err := b.Batches.Cases(asServer(t), ended, 0, 9)
		if err != nil {
			t.Fatal(err)
		}
		for i, passes := range []bool{true, false, false, true, true, true, false, false, true} {
			if got := cases[i]; (got.State == runtime.CasePassed) != passes || got.State != runtime.CasePassed && got.State != runtime.CaseFailed {
				t.Errorf("case %d: %s, %+v", i, got.State, got.Execution.Comparison)
			}
		}
		if d := cases[1].Execution.Comparison.Difference; d == nil || d.Line != 1 || *d.Expected != "1 3" || *d.Actual != "1 2" {
			t.Errorf(`got %+v, want line 1: "1 2" instead of "1 3"`, d)
		}
		if got := cases[8].Execution.Comparison; got != nil {
			t.Errorf("without an expected output: %+v", got)
		}
	}
}

func TestBatchEventsComeOnceAndInOrder(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 0)
	r := b.claim(t, "a")
	of := request.Batch{Cases: []request.Case{{Stdin: []byte("one")}, {Stdin: []byte("two")}}}
	started, _, err := b.Batches.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"cat"}}, of)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"0 1", `0 "one"`, "0 5", "1 1", `1 "two"`, "1 5", "COMPLETED"}
	live := b.follow(t, started.ID, "") // from before its end
	if got := inWords(live); !slices.Equal(got, want) {
		t.Errorf("live: %q, want %q", got, want)
	}
	b.awaitBatch(t, started.ID)
	if got := inWords(b.follow(t, started.ID, "")); !slices.Equal(got, want) {
		t.Errorf("afterwards: %q, want %q", got, want)
	}
	for i, e := range live {
		rest := want[min(i+1, len(want)-1):] // the end is repeated
		if got := inWords(b.follow(t, started.ID, e.Cursor)); !slices.Equal(got, rest) {
			t.Errorf("after %q: %q, want %q", e.Cursor, got, rest)
		}
	}
	for _, bad := range []string{"x", "3.", "-1.", "0.x", "01.", "1." + strings.TrimPrefix(live[1].Cursor, "0.")} {
		_, err := b.Batches.Events(asServer(t), started.ID, bad)
		refusal.Want(t, err, runtime.CodeInvalidInput, "after")
	}
}

func TestBatchOutcomes(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 0)
	cases := func(args ...string) (all []request.Case) {
		for _, arg := range args {
			all = append(all, request.Case{Args: []string{arg}})
		}
		return all
	}
	for name, test := range map[string]struct {
		command string
		of      request.Batch
		meddle  func(t *testing.T, id runtime.BatchID, runner runtime.RunnerID)
		outcome runtime.BatchOutcome
		cases   []string
	}{
		"at a failure": {"exit", request.Batch{Cases: cases("0", "1", "0"), StopOnFailure: true}, nil,
			runtime.BatchStopped, []string{`PASSED EXITED 0 ""`, `FAILED EXITED 1 ""`, "SKIPPED"}},
		"at the last failure": {"exit", request.Batch{Cases: cases("0", "1"), StopOnFailure: true}, nil,
			runtime.BatchCompleted, []string{`PASSED EXITED 0 ""`, `FAILED EXITED 1 ""`}},
		"at the build": {"exit", request.Batch{Build: &request.Build{Shell: ptr("exit 2")}, Cases: cases("0", "0")}, nil,
			runtime.BatchBuildFailed, []string{"SKIPPED", "SKIPPED"}},
		"cancelled": {"sleep", request.Batch{Cases: cases("0", "3600", "0")}, func(t *testing.T, id runtime.BatchID, _ runtime.RunnerID) {
			began := time.Now()
			if ended, err := b.Batches.Cancel(asServer(t), id); err != nil || ended.State != runtime.BatchFinished && time.Since(began) < 2*time.Second {
				t.Error(ended, err)
			}
		}, runtime.BatchCancelled, []string{`PASSED EXITED 0 ""`, `FAILED CANCELLED 0 ""`, "SKIPPED"}},
		"with its runner": {"sleep", request.Batch{Cases: cases("0", "3600", "0")}, func(t *testing.T, _ runtime.BatchID, runner runtime.RunnerID) {
			if _, err := b.Runners.Release(asServer(t), runner); err != nil {
				t.Error(err)
			}
		}, runtime.BatchRunnerGone, []string{`PASSED EXITED 0 ""`, `FAILED RUNNER_GONE 0 ""`, "SKIPPED"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := b.claim(t, "a")
			started, _, err := b.Batches.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{test.command}}, test.of)
			if err != nil {
				t.Fatal(err)
			}
			if test.meddle != nil {
				wait.For(t, "the second case runs", func() bool {
					now, err := b.Batches.Get(asServer(t), started.ID)
					cases, err2 := b.Batches.Cases(asServer(t), now, 1, 2)
					return err == nil && err2 == nil && cases[0].Execution != nil && cases[0].Execution.State == runtime.ExecutionRunning
				})
				test.meddle(t, started.ID, r.ID)
			}
			ended := b.awaitBatch(t, started.ID)
			if got := b.cases(t, ended); ended.Outcome != test.outcome || !slices.Equal(got, test.cases) || ended.Message == "" {
				t.Errorf("%+v, %q", ended, got)
			}
			if all := b.follow(t, ended.ID, ""); all[len(all)-1].Finished.Outcome != test.outcome {
				t.Error(inWords(all))
			}
		})
	}
}

// TestRunOfABatch checks that all steps of a run's batch share its files and its runner.
func TestRunOfABatch(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	in := request.Run{EnvironmentID: "a", Command: []string{"cat"}, Files: []runtime.FileWrite{{Path: "f", Data: []byte("x")}}, WaitFor: ptr(patient)}
	for _, fresh := range []bool{false, true} {
		started, first, err := b.Batches.Run(asServer(t), in, request.Batch{Cases: []request.Case{{Stdin: []byte("one")}, {Stdin: []byte("two")}, {}}, FreshRunners: fresh})
		if err != nil {
			t.Fatal(err)
		}
		ended := b.awaitBatch(t, started.ID)
		if got, want := b.cases(t, ended), []string{`PASSED EXITED 0 "one"`, `PASSED EXITED 0 "two"`, `PASSED EXITED 0 ""`}; !slices.Equal(got, want) {
			t.Errorf("fresh %v: %q, want %q", fresh, got, want)
		}
		cases, err := b.Batches.Cases(asServer(t), ended, 0, 3)
		if err != nil {
			t.Fatal(err)
		}
		runners := map[runtime.RunnerID]bool{}
		for _, c := range cases {
			runners[c.Execution.RunnerID] = true
			wait.For(t, "the runner is removed", func() bool { _, there := b.runnerIndex.get(c.Execution.RunnerID); return !there })
		}
		if want := map[bool]int{false: 1, true: 3}[fresh]; len(runners) != want || ended.FreshRunners() != fresh || first.ID != cases[0].Execution.ID {
			t.Errorf("fresh %v: %v, %+v", fresh, runners, ended)
		}
	}
}

func TestBatchKeys(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	in, of := request.Start{RunnerID: r.ID, Command: []string{"true"}, Key: "k"}, request.Batch{Cases: []request.Case{{}, {}}}
	started, first, err := b.Batches.Start(asServer(t), in, of)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // while it runs, and afterwards
		again, same, err := b.Batches.Start(asServer(t), in, of)
		if err != nil || again.ID != started.ID || same.ID != first.ID {
			t.Error(again, same, err)
		}
		_, _, err = b.Batches.Start(asServer(t), in, request.Batch{Cases: []request.Case{{}}})
		refusal.Want(t, err, runtime.CodeConflict, "")
		_, err = b.Executions.Start(asServer(t), in)
		refusal.Want(t, err, runtime.CodeConflict, "")
		b.awaitBatch(t, started.ID)
	}
	in.Key = "other"
	if _, err := b.Executions.Start(asServer(t), in); err != nil {
		t.Fatal(err)
	}
	_, _, err = b.Batches.Start(asServer(t), in, of)
	refusal.Want(t, err, runtime.CodeConflict, "")

	for _, fresh := range []bool{false, true} {
		in := request.Run{EnvironmentID: "a", Command: []string{"true"}, WaitFor: ptr(patient), Key: fmt.Sprint("k", fresh)}
		of := request.Batch{Cases: []request.Case{{}, {}}, FreshRunners: fresh}
		started, first, err := b.Batches.Run(asServer(t), in, of)
		if err != nil {
			t.Fatal(err)
		}
		again, same, err := b.Batches.Run(asServer(t), in, of)
		if err != nil || again.ID != started.ID || same.ID != first.ID {
			t.Error(again, same, err)
		}
		b.awaitBatch(t, started.ID)
		_, _, err = b.Batches.Run(asServer(t), in, request.Batch{Cases: []request.Case{{}}, FreshRunners: fresh})
		refusal.Want(t, err, runtime.CodeConflict, "")
	}
}

func TestInvalidBatchInputIsRefused(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	one := []request.Case{{}}
	good := request.Start{RunnerID: r.ID, Command: []string{"true"}}
	for field, test := range map[string]struct {
		in request.Start
		of request.Batch
	}{
		"cases":                      {good, request.Batch{Cases: []request.Case{}}},
		"terminal":                   {request.Start{RunnerID: r.ID, Command: []string{"true"}, Terminal: &runtime.TerminalSize{Columns: 1, Rows: 1}}, request.Batch{Cases: one}},
		"stdin":                      {request.Start{RunnerID: r.ID, Command: []string{"true"}, Stdin: true}, request.Batch{Cases: one}},
		"freshRunners":               {good, request.Batch{Cases: one, FreshRunners: true}},
		"command":                    {request.Start{RunnerID: r.ID}, request.Batch{Cases: one}},
		"timeLimit":                  {request.Start{RunnerID: r.ID, Command: []string{"true"}, TimeLimit: ptr(-1)}, request.Batch{Cases: one}},
		"build.command":              {good, request.Batch{Build: &request.Build{}, Cases: one}},
		"build.timeLimit":            {good, request.Batch{Build: &request.Build{Shell: ptr("x"), Bounds: batch.Bounds{TimeLimit: ptr(-1)}}, Cases: one}},
		"cases.0.timeLimit":          {good, request.Batch{Cases: []request.Case{{Bounds: batch.Bounds{TimeLimit: ptr(86401)}}}}},
		"cases.1.args.1":             {good, request.Batch{Cases: []request.Case{{}, {Args: []string{"", "\x00"}}}}},
		"cases.0.args":               {good, request.Batch{Cases: []request.Case{{Args: make([]string, 4096)}}}},
		"cases.1.stdin":              {good, request.Batch{Cases: []request.Case{{Stdin: make([]byte, 16<<20)}, {Stdin: []byte{0}}}}},
		"cases.0.limits.cpuSeconds":  {good, request.Batch{Cases: []request.Case{{Bounds: batch.Bounds{CPUSeconds: ptr(0)}}}}},
		"cases.0.limits.outputBytes": {good, request.Batch{Cases: []request.Case{{Bounds: batch.Bounds{OutputLimit: ptr(int64(1) << 40)}}}}},
		"build.limits.outputBytes":   {good, request.Batch{Build: &request.Build{Shell: ptr("x"), Bounds: batch.Bounds{OutputLimit: ptr(int64(runtime.MaxOutputLimit))}}, Cases: one}},
		"cases.0.compare":            {good, request.Batch{Cases: []request.Case{{Compare: runtime.CompareExact}}}},
		"cases.0.tolerance":          {good, request.Batch{Cases: []request.Case{{Expected: []byte{}, Compare: runtime.CompareTokens, Tolerance: ptr(0.5)}}}},
		"cases.1.tolerance":          {good, request.Batch{Cases: []request.Case{{}, {Expected: []byte{}, Compare: runtime.CompareNumbers, Tolerance: ptr(1.5)}}}},
		"cases.1.expectedOutput":     {good, request.Batch{Cases: []request.Case{{Expected: make([]byte, 16<<20)}, {Expected: []byte{0}}}}},
		"cases.0.limits.processes":   {good, request.Batch{Cases: []request.Case{{Bounds: batch.Bounds{Processes: ptr(-1)}}}}},
	} {
		_, _, err := b.Batches.Start(asServer(t), test.in, test.of)
		refusal.Want(t, err, runtime.CodeInvalidInput, field)
	}
	_, _, err := b.Batches.Start(asServer(t), good, request.Batch{Cases: make([]request.Case, 1001)})
	refusal.Want(t, err, runtime.CodeInvalidInput, "cases")
	run := request.Run{EnvironmentID: "a", Command: []string{"true"}}
	_, _, err = b.Batches.Run(asServer(t), run, request.Batch{Build: &request.Build{Shell: ptr("x")}, Cases: one, FreshRunners: true})
	refusal.Want(t, err, runtime.CodeInvalidInput, "freshRunners")
	run.Stdin = ptr("")
	_, _, err = b.Batches.Run(asServer(t), run, request.Batch{Cases: one})
	refusal.Want(t, err, runtime.CodeInvalidInput, "stdin")
	_, _, err = b.Batches.Run(asServer(t), request.Run{EnvironmentID: "none", Command: []string{"true"}}, request.Batch{Cases: one, FreshRunners: true})
	refusal.Want(t, err, runtime.CodeEnvironmentNotFound, "")
	_, _, err = b.Batches.Start(asServer(t), request.Start{RunnerID: "none", Command: []string{"true"}}, request.Batch{Cases: one})
	refusal.Want(t, err, runtime.CodeRunnerGone, "")
	_, err = b.Batches.Get(asServer(t), "none")
	refusal.Want(t, err, runtime.CodeBatchNotFound, "")
	_, err = b.Batches.Cancel(asServer(t), "none")
	refusal.Want(t, err, runtime.CodeBatchNotFound, "")
	_, err = b.Batches.Events(asServer(t), "none", "")
	refusal.Want(t, err, runtime.CodeBatchNotFound, "")
	if all, total, err := b.Batches.List(asServer(t), request.Batches{}, 10, ""); err != nil || total != 0 {
		t.Error("something is left of a refused batch:", all, err)
	}
	if n := b.batchTable.len(); n != 0 {
		t.Errorf("%d leaders are left, want 0", n)
	}
}

// TestKilledServersLoseNoCase kills the engine at random moments while batches run. Each case must
// start once and get its whole input.
func TestKilledServersLoseNoCase(t *testing.T) {
	const seed, cases = 5, 40
	random := rand.New(rand.NewPCG(seed, 0))
	b := newBed(t)
	b.environment(t, "a", 1)
	of := request.Batch{}
	for i := range cases {
		of.Cases = append(of.Cases, request.Case{Stdin: fmt.Append(nil, "case ", i)})
	}
	in := request.Run{EnvironmentID: "a", Command: []string{"cat"}, WaitFor: ptr(patient)}
	one, _, err := b.Batches.Run(asServer(t), in, of)
	if err != nil {
		t.Fatal(err)
	}
	of.FreshRunners = true
	fresh, _, err := b.Batches.Run(asServer(t), in, of)
	if err != nil {
		t.Fatal(err)
	}
	kills := 0
	for ended := false; !ended; kills++ {
		atSomeMoment(random)
		b.kill(func() {})
		b.start(t)
		ended = b.batchTable.len() == 0
	}
	for _, id := range []runtime.BatchID{one.ID, fresh.ID} {
		ended := b.awaitBatch(t, id)
		if ended.Outcome != runtime.BatchCompleted || ended.Progress != (runtime.BatchProgress{Begun: cases, Ended: cases}) {
			t.Errorf("%+v", ended)
		}
		for i, got := range b.cases(t, ended) {
			if want := fmt.Sprintf(`PASSED EXITED 0 "case %d"`, i); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		all, err := b.Batches.Cases(asServer(t), ended, 0, cases)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			if !ended.FreshRunners() {
				if n := b.fake.Begun(c.Execution.RunnerID, c.Execution.ID); n > 1 {
					t.Errorf("case %d was started %d times", c.Index, n)
				}
			}
			wait.For(t, "the runner is removed", func() bool { _, there := b.runnerIndex.get(c.Execution.RunnerID); return !there })
		}
	}
	page, err := b.Executions.List(asServer(t), request.Executions{}, 1, "")
	if err != nil || page.Total != 2*cases {
		t.Errorf("%d executions, want %d: %v", page.Total, 2*cases, err)
	}
	t.Logf("%d kills", kills)
}

// TestCancelledBatchStaysCancelled restarts the server after the cancellation.
func TestCancelledBatchStaysCancelled(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 0)
	r := b.claim(t, "a")
	started, _, err := b.Batches.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"sleep", "3600"}}, request.Batch{Cases: []request.Case{{}, {}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.store.CancelBatch(context.Background(), started.ID); err != nil { // and then the server is killed
		t.Fatal(err)
	}
	b.stop()
	b.start(t)
	ended := b.awaitBatch(t, started.ID)
	if got := b.cases(t, ended); ended.Outcome != runtime.BatchCancelled || !slices.Equal(got, []string{`FAILED CANCELLED 0 ""`, "SKIPPED"}) {
		t.Errorf("%+v, %q", ended, got)
	}
}

// TestCaseIsRetriedAfterItsFreshRunnerIsGone removes a fresh runner before its case begins there.
func TestCaseIsRetriedAfterItsFreshRunnerIsGone(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	in := request.Run{EnvironmentID: "a", Command: []string{"sleep", "0"}, WaitFor: ptr(patient)}
	release := func(id runtime.RunnerID) {
		if _, err := b.Runners.Release(asServer(t), id); err != nil {
			t.Error(err)
		}
	}
	b.batchHost.Begin = func(ctx context.Context, of runtime.Batch, caller string, number int, cancelled <-chan struct{}) (runtime.Execution, error) {
		if number == 1 { // as an earlier server, which was killed then
			claim, err := request.Claim{WaitFor: ptr(patient)}.ParsePart()
			if err != nil {
				return runtime.Execution{}, err
			}
			claim.Claim.Key, claim.Claim.Input = request.CaseKey(of.ID, number), string(of.ID)
			r, _, err := b.claimBy(ctx, b.jobs.Add, "a", claim)
			if err != nil {
				return runtime.Execution{}, err
			}
			release(r.ID)
		}
		return b.beginCase(ctx, of, caller, number, cancelled)
	}
	started, _, err := b.Batches.Run(asServer(t), in, request.Batch{Cases: []request.Case{{}, {}}, FreshRunners: true})
	if err != nil {
		t.Fatal(err)
	}
	if ended := b.awaitBatch(t, started.ID); ended.Outcome != runtime.BatchCompleted || ended.Progress.Failed != 0 {
		t.Errorf("%+v", ended)
	}
}

// TestRunsHaveAWorkingDirectory runs a command and a batch, in a directory and in the workspace.
func TestRunsHaveAWorkingDirectory(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	for dir, want := range map[string]string{"": runtime.Workspace, "/workspace/a": "/workspace/a"} {
		in := request.Run{EnvironmentID: "a", Command: []string{"pwd"}, WorkingDirectory: dir, WaitFor: ptr(patient)}
		one, err := b.Executions.Run(asServer(t), in)
		if err != nil {
			t.Fatal(err)
		}
		_, first, err := b.Batches.Run(asServer(t), in, request.Batch{Cases: make([]request.Case, 1)})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range []runtime.Execution{one, first} {
			if output, _ := b.events(t, x.ID, ""); output != want+"\n" {
				t.Errorf("in %q it printed %q", dir, output)
			}
		}
	}
}

// TestLargeCasesAreOnSeveralPages: a starting server reads all of them.
func TestLargeCasesAreOnSeveralPages(t *testing.T) {
	const cases = 5
	b := newBed(t)
	b.environment(t, "a", 1)
	of, large := request.Batch{}, slices.Repeat([]string{strings.Repeat("x", 125_000)}, 8) // 1 MB: two on a page
	for range cases - 1 {
		of.Cases = append(of.Cases, request.Case{Args: append([]string{"0"}, large...)})
	}
	of.Cases = append(of.Cases, request.Case{Args: []string{"600"}})
	made, _, err := b.Batches.Run(asServer(t), request.Run{EnvironmentID: "a", Command: []string{"sleep"}, WaitFor: ptr(patient)}, of)
	if err != nil {
		t.Fatal(err)
	}
	begun := func() int {
		state, _ := b.batchTable.get(made.ID).State()
		return len(state.Executions)
	}
	wait.For(t, "the last case runs", func() bool { return begun() == cases })
	read, pages := 0, 0
	for ; read < cases; pages++ {
		page, err := b.Batches.Cases(asServer(t), made, read, cases)
		if err != nil || len(page) == 0 || page[0].Index != read || slices.ContainsFunc(page, func(c runtime.Case) bool { return c.Execution == nil }) {
			t.Fatalf("the page from case %d: %d cases, %v", read, len(page), err)
		}
		read += len(page)
	}
	if pages != 2 {
		t.Errorf("got %d pages, want 2", pages)
	}
	b.stop()
	b.start(t)
	wait.For(t, "the batch is known again", func() bool { return b.batchTable.get(made.ID) != nil })
	if got := begun(); got != cases {
		t.Errorf("after a restart %d executions are known, want %d", got, cases)
	}
	known, err := b.endsOfCases(asServer(t), made)
	if err != nil || len(known) != cases {
		t.Errorf("%d executions for the coordinator, want %d: %v", len(known), cases, err)
	}
	for number, x := range known {
		if x.ID == "" || x.Command != nil || x.Accepted() != (number < cases-1) {
			t.Errorf("case %d for the coordinator: id %q, %d arguments, accepted %t", number, x.ID, len(x.Command), x.Accepted())
		}
	}
	if _, err := b.Batches.Cancel(asServer(t), made.ID); err != nil {
		t.Error(err)
	}
	b.awaitBatch(t, made.ID)
}

func (all *batchTable) len() int {
	all.mu.Lock()
	defer all.mu.Unlock()
	return len(all.byID)
}
