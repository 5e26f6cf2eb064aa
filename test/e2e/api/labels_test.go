package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/e2e/bed"
)

type found struct {
	Executions struct {
		TotalCount int
		Nodes      []struct {
			ID, CommandLine string
			Labels          []runtime.Label
		}
	}
}

// TestE2ELabels finds claims and executions by labels, outcome, text and time, also after their
// runner ended.
func TestE2ELabels(t *testing.T) {
	b := bed.Open(t)
	user := uuid.NewString() // unique: executions are kept
	b.Put(t, object{"id": "labelled", "poolSize": 1})
	label := func(name, value string) []object { return []object{{"name": name, "value": value}} }
	var claimed struct {
		ClaimRunner struct {
			Runner struct{ ID, CreatedAt string }
		}
	}
	b.Call(t, `mutation($in: ClaimRunnerInput!) { claimRunner(input: $in) { runner { id createdAt } } }`,
		object{"in": object{"environmentId": "labelled", "waitFor": 60, "labels": label("user", user)}}, &claimed)
	runner := claimed.ClaimRunner.Runner
	ran := b.Start(t, object{"runnerId": runner.ID, "shell": "echo Hello; exit 3", "labels": label("step", "it's")})
	b.Await(t, ran)
	var run struct {
		Run struct{ Execution struct{ ID, RunnerID string } }
	}
	b.Call(t, `mutation($in: RunInput!) { run(input: $in) { execution { id runnerId } } }`,
		object{"in": object{"environmentId": "labelled", "waitFor": 60, "command": []string{"sleep", "1000"}, "labels": label("user", user)}}, &run)
	sleeps := run.Run.Execution

	for name, test := range map[string]struct {
		filter string
		want   []string
	}{
		"both":           {``, []string{sleeps.ID, ran}},
		"failed":         {`failed: true`, []string{ran}},
		"not failed":     {`failed: false`, nil},
		"an outcome":     {`outcomes: [EXITED, LOST]`, []string{ran}},
		"another one":    {`outcomes: [TIME_LIMIT]`, nil},
		"text":           {`command: "ECHO hello"`, []string{ran}},
		"a state":        {`states: [PENDING, RUNNING]`, []string{sleeps.ID}},
		"a runner":       {fmt.Sprintf(`runnerId: %q`, runner.ID), []string{ran}},
		"from":           {fmt.Sprintf(`from: %q`, runner.CreatedAt), []string{sleeps.ID, ran}},
		"to":             {fmt.Sprintf(`to: %q`, runner.CreatedAt), nil},
		"all of a label": {`failed: true, environmentId: "labelled", first: 1, outcomes: [EXITED], command: "exit 3"`, []string{ran}},
	} {
		var out found
		b.Call(t, `query($labels: [LabelFilterInput!]) { executions(newestFirst: true, labels: $labels, `+test.filter+`) { totalCount nodes { id commandLine labels { name value } } } }`,
			object{"labels": label("user", user)}, &out)
		var got []string
		for _, x := range out.Executions.Nodes {
			got = append(got, x.ID)
		}
		if strings.Join(got, " ") != strings.Join(test.want, " ") || out.Executions.TotalCount != len(test.want) {
			t.Errorf("%s: %v of %d, not %v", name, got, out.Executions.TotalCount, test.want)
		}
	}

	var others struct{ Runner struct{ CreatedAt string } }
	b.Call(t, `query($id: ID!) { runner(id: $id) { createdAt } }`, object{"id": sleeps.RunnerID}, &others)
	first, second, from := runner.ID, sleeps.RunnerID, runner.CreatedAt
	if at := others.Runner.CreatedAt; instant(t, at).Before(instant(t, from)) { // of two runners made at the same time, either may be claimed first
		first, second, from = second, first, at
	}
	var runners struct {
		Runners struct{ Nodes []struct{ ID string } }
	}
	b.Call(t, `query($labels: [LabelFilterInput!], $from: Time) { runners(labels: $labels, from: $from) { nodes { id } } }`,
		object{"labels": []object{{"name": "user", "value": user}}, "from": from}, &runners)
	if got := runners.Runners.Nodes; len(got) != 2 || got[0].ID != first || got[1].ID != second {
		t.Errorf("%+v, not %s and %s", got, first, second)
	}
	b.Call(t, `mutation($id: ID!) { cancelExecution(id: $id) { execution { id } } }`, object{"id": sleeps.ID}, nil)
	b.Call(t, `mutation($id: ID!) { releaseRunner(id: $id) { released } }`, object{"id": runner.ID}, nil)
	var out found
	b.Call(t, `query($labels: [LabelFilterInput!]) { executions(labels: $labels) { nodes { id commandLine labels { name value } } } }`, object{"labels": []object{{"name": "step", "value": "it's"}, {"name": "user", "value": user}}}, &out)
	if got := out.Executions.Nodes; len(got) != 1 || got[0].CommandLine != "echo Hello; exit 3" || len(got[0].Labels) != 2 || got[0].Labels[0].Value != user {
		t.Errorf("after its runner: %+v", got)
	}

	many := make([]object, 33)
	for i := range many {
		many[i] = object{"name": "a", "value": "b"}
	}
	const search = `query($labels: [LabelFilterInput!], $command: String, $from: Time, $to: Time) { executions(labels: $labels, command: $command, from: $from, to: $to) { totalCount } }`
	for field, variables := range map[string]object{
		"labels": {"labels": many}, "command": {"command": strings.Repeat("x", 4097)}, "to": {"from": runner.CreatedAt, "to": runner.CreatedAt},
	} {
		b.Refused(t, search, variables, runtime.CodeInvalidInput, field)
	}
	b.Refused(t, `{ runners(labels: [{name: ""}]) { totalCount } }`, nil, runtime.CodeInvalidInput, "labels")
	b.Refused(t, `mutation($in: RunInput!) { run(input: $in) { execution { id } } }`, object{"in": object{"environmentId": "labelled", "shell": "true", "labels": many}}, runtime.CodeInvalidInput, "labels")
	b.Refused(t, `mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`, object{"in": object{"runnerId": runner.ID, "shell": "true", "labels": many}}, runtime.CodeInvalidInput, "labels")
}

// TestE2EExecutionsShowTheirCommandLine: a client whose user's command is part of a script can
// store the line that the user typed. Lists show it.
func TestE2EExecutionsShowTheirCommandLine(t *testing.T) {
	b := bed.Open(t)
	user := []object{{"name": "user", "value": uuid.NewString()}}
	script := []string{"sh", "-c", `exec "$@"`, "sh", "echo"}
	in := object{"environmentId": "shell", "waitFor": 60, "command": script, "commandLine": "say it", "labels": user}
	const run = `mutation($in: RunInput!) { run(input: $in) { execution { id command commandLine } batch { id } } }`
	var made struct {
		Run struct {
			Execution struct {
				ID, CommandLine string
				Command         []string
			}
			Batch struct{ ID string }
		}
	}
	b.Call(t, run, object{"in": in}, &made)
	if x := made.Run.Execution; x.CommandLine != "say it" || !slices.Equal(x.Command, script) {
		t.Errorf("%+v", x)
	}
	b.Await(t, made.Run.Execution.ID)
	in["cases"] = []object{{"args": []string{"one", "a b"}}}
	b.Call(t, run, object{"in": in}, &made)
	if x := made.Run.Execution; x.CommandLine != "say it one 'a b'" || !slices.Equal(x.Command, append(script, "one", "a b")) {
		t.Errorf("%+v", x)
	}
	b.Await(t, made.Run.Execution.ID)
	var out found
	b.Call(t, `query($labels: [LabelFilterInput!]) { executions(labels: $labels, command: "SAY IT") { totalCount nodes { commandLine } } }`, object{"labels": user}, &out)
	if out.Executions.TotalCount != 2 {
		t.Errorf("%+v", out)
	}
	for _, line := range []string{"\x1b[31m", strings.Repeat("x", 4097)} {
		in["commandLine"] = line
		b.Refused(t, run, object{"in": in}, runtime.CodeInvalidInput, "commandLine")
		b.Refused(t, `mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`,
			object{"in": object{"runnerId": "r", "shell": "true", "commandLine": line}}, runtime.CodeInvalidInput, "commandLine")
	}
}

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}
