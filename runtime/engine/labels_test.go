package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/test/refusal"
	"github.com/rockpool/rockpool/test/wait"
)

func labels(pairs ...string) (all []runtime.Label) {
	for pair := range slices.Chunk(pairs, 2) {
		all = append(all, runtime.Label{Name: pair[0], Value: pair[1]})
	}
	return all
}

// found returns the executions that a search finds, oldest first.
func (b *bed) found(t *testing.T, filter request.Executions) []runtime.Execution {
	t.Helper()
	page, err := b.Executions.List(asServer(t), filter, 100, "")
	if err != nil {
		t.Fatal(err)
	}
	return page.Executions
}

// TestExecutionsKeepTheirLabels checks labels of the claim and of the execution after a restart and
// after the runner's removal.
func TestExecutionsKeepTheirLabels(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r, err := b.Runners.Claim(asServer(t), request.Claim{EnvironmentID: "a", WaitFor: ptr(patient), Labels: labels("user", "ada", "course", "c")})
	if err != nil {
		t.Fatal(err)
	}
	x, err := b.Executions.Start(asServer(t), request.Start{RunnerID: r.ID, Shell: ptr("exit 3"), Labels: labels("user", "bob", "step", "1")})
	if err != nil {
		t.Fatal(err)
	}
	want := labels("course", "c", "user", "bob", "step", "1")
	if x, err = b.Executions.Get(asServer(t), x.ID, wait.Limit); err != nil || !slices.Equal(x.Labels, want) || x.CommandLine() != "exit 3" {
		t.Errorf("%+v, %v", x, err)
	}
	plain := b.run(t, r.ID, "true").ID
	if _, err := b.Runners.Release(asServer(t), r.ID); err != nil {
		t.Fatal(err)
	}
	b.stop()
	b.start(t)
	if kept, err := b.Executions.Get(asServer(t), x.ID, 0); err != nil || !slices.Equal(kept.Labels, want) || kept.CommandLine() != "exit 3" {
		t.Errorf("%+v, %v", kept, err)
	}
	for _, test := range []struct {
		filter request.Executions
		want   []runtime.ExecutionID
	}{
		{request.Executions{Labels: []runtime.LabelFilter{{Name: "course", Value: ptr("c")}}}, []runtime.ExecutionID{x.ID, plain}},
		{request.Executions{Labels: []runtime.LabelFilter{{Name: "user", Value: ptr("ada")}}}, []runtime.ExecutionID{plain}},
		{request.Executions{Labels: []runtime.LabelFilter{{Name: "step"}}}, []runtime.ExecutionID{x.ID}},
		{request.Executions{Command: "EXIT"}, []runtime.ExecutionID{x.ID}},
		{request.Executions{Failed: ptr(false)}, []runtime.ExecutionID{plain}},
	} {
		var got []runtime.ExecutionID
		for _, x := range b.found(t, test.filter) {
			got = append(got, x.ID)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%+v: %v, not %v", test.filter, got, test.want)
		}
	}
}

// TestLabelsOfAnExecutionAreBounded counts the claim's labels too, and checks that a refused start
// leaves nothing behind.
func TestLabelsOfAnExecutionAreBounded(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	many := make([]runtime.Label, runtime.MaxLabels)
	for i := range many {
		many[i] = runtime.Label{Name: fmt.Sprint("n", i)}
	}
	r, err := b.Runners.Claim(asServer(t), request.Claim{EnvironmentID: "a", WaitFor: ptr(patient), Labels: many})
	if err != nil {
		t.Fatal(err)
	}
	one := request.Start{RunnerID: r.ID, Command: []string{"true"}, Labels: labels("one", "more")}
	_, err = b.Executions.Start(asServer(t), one)
	_, _, ofBatch := b.Batches.Start(asServer(t), one, request.Batch{Cases: make([]request.Case, 1)})
	for _, err := range []error{err, ofBatch} {
		refusal.Want(t, err, runtime.CodeInvalidInput, "labels")
	}
	one.Labels = labels("n0", "other")
	if x, err := b.Executions.Start(asServer(t), one); err != nil || len(x.Labels) != runtime.MaxLabels {
		t.Error(x.Labels, err)
	}
	_, err = b.Executions.List(asServer(t), request.Executions{Command: strings.Repeat("x", 257)}, 1, "")
	refusal.Want(t, err, runtime.CodeInvalidInput, "command")
}

// TestDifferentLabelsConflictOnAKey retries with other labels.
func TestDifferentLabelsConflictOnAKey(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 2)
	r := b.claim(t, "a")
	cases := request.Batch{Cases: make([]request.Case, 1)}
	for name, start := range map[string]func(of []runtime.Label) (any, error){
		"start": func(of []runtime.Label) (any, error) {
			x, err := b.Executions.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"true"}, Key: "s", Labels: of})
			return x.ID, err
		},
		"run": func(of []runtime.Label) (any, error) {
			x, err := b.Executions.Run(asServer(t), request.Run{EnvironmentID: "a", WaitFor: ptr(patient), Command: []string{"true"}, Key: "r", Labels: of})
			return x.ID, err
		},
		"start of a batch": func(of []runtime.Label) (any, error) {
			made, _, err := b.Batches.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"true"}, Key: "sb", Labels: of}, cases)
			return made.ID, err
		},
		"run of a batch": func(of []runtime.Label) (any, error) {
			made, _, err := b.Batches.Run(asServer(t), request.Run{EnvironmentID: "a", WaitFor: ptr(patient), Command: []string{"true"}, Key: "rb", Labels: of}, cases)
			return made.ID, err
		},
	} {
		first, err := start(labels("user", "ada"))
		if err != nil {
			t.Fatal(name, err)
		}
		if again, err := start(labels("user", "ada")); err != nil || again != first {
			t.Errorf("%s: %v, not %v: %v", name, again, first, err)
		}
		for _, other := range [][]runtime.Label{nil, labels("user", "bob")} {
			_, err := start(other)
			refusal.Want(t, err, runtime.CodeConflict, "", name, other)
		}
		if _, err := start(labels("", "x")); runtime.CodeOf(err) != runtime.CodeInvalidInput {
			t.Errorf("%s: got %v, want INVALID_INPUT", name, err)
		}
	}
}

// TestEachExecutionOfABatchHasItsLabels also checks the claims that the batch made.
func TestEachExecutionOfABatchHasItsLabels(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 2)
	run := request.Run{EnvironmentID: "a", WaitFor: ptr(patient), Shell: ptr("exit 3"), Labels: labels("user", "ada")}
	built := request.Batch{Build: &request.Build{Shell: ptr("true")}, Cases: []request.Case{{Args: []string{"a b"}}, {}}}
	fresh := request.Batch{FreshRunners: true, Cases: []request.Case{{Args: []string{"a b"}}, {}}}
	for of, in := range map[string]request.Batch{"one runner": built, "fresh runners": fresh} {
		run.Labels = labels("user", "ada", "of", of)
		made, _, err := b.Batches.Run(asServer(t), run, in)
		if err != nil {
			t.Fatal(err)
		}
		b.awaitBatch(t, made.ID)
		lines := map[string]int{}
		for _, x := range b.found(t, request.Executions{Labels: []runtime.LabelFilter{{Name: "of", Value: &of}}}) {
			if !slices.Equal(x.Labels, run.Labels) {
				t.Errorf("%s: %v", of, x.Labels)
			}
			lines[x.CommandLine()]++
		}
		want := map[string]int{"exit 3 'a b'": 1, "exit 3": 1, "true": 1}
		if of == "fresh runners" {
			delete(want, "true")
		}
		for line, n := range want {
			if lines[line] != n || len(lines) != len(want) {
				t.Errorf("%s: %v, not %v", of, lines, want)
			}
		}
	}
}

// TestBatchesLabelTheirRunners checks that only runners claimed for the batch get its labels. In an
// earlier claimed runner only the executions do.
func TestBatchesLabelTheirRunners(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 2)
	held := b.claim(t, "a")
	sleep, cases := []string{"sleep", "3600"}, []request.Case{{}}
	for of, start := range map[string]func(of []runtime.Label) (runtime.Batch, runtime.Execution, error){
		"claimed": func(of []runtime.Label) (runtime.Batch, runtime.Execution, error) {
			return b.Batches.Start(asServer(t), request.Start{RunnerID: held.ID, Command: sleep, Labels: of}, request.Batch{Cases: cases})
		},
		"one": func(of []runtime.Label) (runtime.Batch, runtime.Execution, error) {
			return b.Batches.Run(asServer(t), request.Run{EnvironmentID: "a", WaitFor: ptr(patient), Command: sleep, Labels: of}, request.Batch{Cases: cases})
		},
		"fresh": func(of []runtime.Label) (runtime.Batch, runtime.Execution, error) {
			return b.Batches.Run(asServer(t), request.Run{EnvironmentID: "a", WaitFor: ptr(patient), Command: sleep, Labels: of}, request.Batch{Cases: cases, FreshRunners: true})
		},
	} {
		made, x, err := start(labels("of", of))
		if err != nil {
			t.Fatal(of, err)
		}
		if !slices.Equal(x.Labels, labels("of", of)) {
			t.Errorf("%s: %v", of, x.Labels)
		}
		r, _ := b.runnerIndex.get(x.RunnerID)
		if got := len(r.Claim.Labels) > 0; got != (of != "claimed") {
			t.Errorf("%s: its runner has %v", of, r.Claim.Labels)
		}
		if _, err := b.Batches.Cancel(asServer(t), made.ID); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRunnersAreSearched(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 2)
	var ids []runtime.RunnerID
	for _, user := range []string{"ada", "bob"} {
		r, err := b.Runners.Claim(asServer(t), request.Claim{EnvironmentID: "a", WaitFor: ptr(patient), Labels: labels("user", user)})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.ID)
	}
	first, _ := b.runnerIndex.get(ids[0])
	user := func(name string) []runtime.LabelFilter { return []runtime.LabelFilter{{Name: "user", Value: &name}} }
	for name, test := range map[string]struct {
		filter request.Runners
		want   int
	}{
		"a label":                  {request.Runners{Labels: user("ada")}, 1},
		"a label of any value":     {request.Runners{Labels: []runtime.LabelFilter{{Name: "user"}}}, 2},
		"no such label":            {request.Runners{Labels: user("Ada")}, 0},
		"from its creation":        {request.Runners{From: first.CreatedAt, Labels: user("ada")}, 1},
		"from after its creation":  {request.Runners{From: first.CreatedAt.Add(1), Labels: user("ada")}, 0},
		"until its creation":       {request.Runners{To: first.CreatedAt, Labels: user("ada")}, 0},
		"until after its creation": {request.Runners{To: first.CreatedAt.Add(1), Labels: user("ada")}, 1},
	} {
		if got := b.runnerIndex.list(test.filter); len(got) != test.want {
			t.Errorf("%s: %d, not %d", name, len(got), test.want)
		}
	}
}

// TestCommandLinesOfClients checks that a client's command line is displayed, searched and kept,
// and doesn't change the command.
func TestCommandLinesOfClients(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	in := request.Start{RunnerID: r.ID, Command: []string{"echo", "script"}, CommandLine: "hello.c x", Key: "k"}
	x, err := b.Executions.Start(asServer(t), in)
	if err != nil || x.CommandLine() != "hello.c x" {
		t.Fatal(x.CommandLine(), err)
	}
	if again, err := b.Executions.Start(asServer(t), in); err != nil || again.ID != x.ID {
		t.Error(again, err)
	}
	in.CommandLine = "hello.c y"
	_, err = b.Executions.Start(asServer(t), in)
	refusal.Want(t, err, runtime.CodeConflict, "")
	b.await(t, x.ID)
	of := request.Batch{Build: &request.Build{Command: []string{"true"}}, Cases: []request.Case{{Args: []string{"1", "two words"}}, {}}}
	batched, _, err := b.Batches.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"echo", "script"}, CommandLine: "./main"}, of)
	if err != nil {
		t.Fatal(err)
	}
	b.awaitBatch(t, batched.ID)
	if _, err := b.Runners.Release(asServer(t), r.ID); err != nil {
		t.Fatal(err)
	}
	run, err := b.Executions.Run(asServer(t), request.Run{EnvironmentID: "a", Command: []string{"echo", "script"}, CommandLine: "of a run", WaitFor: ptr(patient)})
	if err != nil {
		t.Fatal(err)
	}
	b.await(t, run.ID)
	b.stop()
	b.start(t)
	var lines []string
	for _, x := range b.found(t, request.Executions{EnvironmentID: "a"}) {
		lines = append(lines, x.CommandLine())
	}
	if want := []string{"hello.c x", "true", "./main 1 'two words'", "./main", "of a run"}; !slices.Equal(lines, want) {
		t.Errorf("%q, not %q", lines, want)
	}
	if found := b.found(t, request.Executions{Command: "HELLO.C"}); len(found) != 1 || !slices.Equal(found[0].Command, in.Command) {
		t.Errorf("%+v", found)
	}
}
