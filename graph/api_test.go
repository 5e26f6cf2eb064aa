package graph

import (
	"bytes"
	"context"
	"encoding/base64"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/rockpool/rockpool/test/wait"
)

const watchExecution = `subscription($id: ID!, $after: Cursor) { executionEvents(executionId: $id, after: $after) {
	__typename cursor
	... on ExecutionStarted { at }
	... on ExecutionOutput { stream text base64 }
	... on ExecutionFinished { execution { state outcome exitCode signal usage { wallMs outputBytes } } }
} }`

type event struct {
	ExecutionEvents struct {
		Typename  string `json:"__typename"`
		Cursor    string
		Stream    string
		Text      string
		Base64    []byte
		Execution struct {
			Outcome  string
			ExitCode *int
			Usage    struct{ OutputBytes int }
		}
	}
}

func TestClaimRunWatchAndRelease(t *testing.T) {
	b := newBed(t)
	b.environment("python", 1)
	runner := b.claim("python")
	id := b.start(in{"runnerId": runner, "command": []string{"echo", "héllo \t\"$(x)\""}})

	watcher := b.watch(watchExecution, in{"id": id})
	var output bytes.Buffer
	var last event
	for last.ExecutionEvents.Typename != "ExecutionFinished" {
		last = event{}
		watcher.next(&last)
		if last.ExecutionEvents.Text != string(last.ExecutionEvents.Base64) {
			t.Errorf("text %q, base64 %q", last.ExecutionEvents.Text, last.ExecutionEvents.Base64)
		}
		output.Write(last.ExecutionEvents.Base64)
	}
	watcher.receive("complete")
	end := last.ExecutionEvents.Execution
	if want := "héllo \t\"$(x)\"\n"; output.String() != want || end.Outcome != "EXITED" || end.ExitCode == nil || *end.ExitCode != 0 || end.Usage.OutputBytes != len(want) {
		t.Errorf("%q, %+v", output.String(), end)
	}

	var again event // the end is sent again on every resume
	late := b.watch(watchExecution, in{"id": id, "after": last.ExecutionEvents.Cursor})
	late.next(&again)
	if again.ExecutionEvents.Typename != "ExecutionFinished" {
		t.Errorf("after the end comes %+v", again)
	}
	late.receive("complete")

	var page struct {
		Execution struct {
			EnvironmentID, RunnerID string
			Runner                  *struct{ State string }
			Output                  struct {
				Chunks []struct{ Text string }
				End    bool
			}
		}
		Executions struct {
			TotalCount int
			Edges      []struct{ Cursor string }
		}
		Runner *struct {
			Claim *struct{ Epoch int }
		}
	}
	query := `query($id: ID!, $runner: ID!) {
		execution(id: $id, waitFor: 1) { environmentId runnerId runner { state } output { chunks { text } end } }
		executions(runnerId: $runner, states: [FINISHED]) { totalCount edges { cursor } }
		runner(id: $runner) { claim { epoch } } }`
	b.send(query, in{"id": id, "runner": runner}, &page)
	x := page.Execution
	if x.EnvironmentID != "python" || x.RunnerID != runner || x.Runner == nil || x.Runner.State != "CLAIMED" || !x.Output.End || len(x.Output.Chunks) != 1 ||
		page.Executions.TotalCount != 1 || len(page.Executions.Edges) != 1 || page.Runner == nil || page.Runner.Claim == nil {
		t.Errorf("%+v", page)
	}

	for _, want := range []bool{true, false} {
		var released struct{ ReleaseRunner struct{ Released bool } }
		b.send(`mutation($id: ID!) { releaseRunner(id: $id) { released } }`, in{"id": runner}, &released)
		if released.ReleaseRunner.Released != want {
			t.Errorf("released is %v", !want)
		}
	}
	b.send(query, in{"id": id, "runner": runner}, &page)
	if page.Runner != nil || page.Execution.Runner != nil {
		t.Errorf("a released runner is still there: %+v", page)
	}
}

// Bytes that aren't UTF-8 leave the WebSocket open, and arrive exactly.
func TestInvalidBytesOfAProgramArriveExactly(t *testing.T) {
	b := newBed(t)
	b.environment("python", 1)
	id := b.start(in{"runnerId": b.claim("python"), "command": []string{"cat"}, "stdin": true})
	sent := []byte("a\xff\xfe\xe2\x82 \x1b[31m\x00é")
	watcher := b.watch(watchExecution, in{"id": id})
	write := `mutation($in: WriteStdinInput!) { writeStdin(input: $in) { offset } }`
	var written struct{ WriteStdin struct{ Offset int } }
	for range 2 { // the second one repeats it, and changes nothing
		b.send(write, in{"in": in{"executionId": id, "base64": base64.StdEncoding.EncodeToString(sent), "offset": 0}}, &written)
	}
	b.send(write, in{"in": in{"executionId": id, "close": true}}, &written)
	if written.WriteStdin.Offset != len(sent) {
		t.Errorf("%d bytes written", written.WriteStdin.Offset)
	}
	var got bytes.Buffer
	var text strings.Builder
	for e := (event{}); e.ExecutionEvents.Typename != "ExecutionFinished"; {
		e = event{}
		watcher.next(&e)
		got.Write(e.ExecutionEvents.Base64)
		text.WriteString(e.ExecutionEvents.Text)
	}
	if !bytes.Equal(got.Bytes(), sent) || !strings.Contains(text.String(), "a��") {
		t.Errorf("%q, as text %q", got.Bytes(), text.String())
	}
}

// When a watcher leaves, its goroutines end, and the execution continues.
func TestLeavingWatchersEndTheirGoroutines(t *testing.T) {
	b := newBed(t)
	b.environment("python", 1)
	id := b.start(in{"runnerId": b.claim("python"), "command": []string{"cat"}, "stdin": true})
	b.send(`mutation($id: ID!) { writeStdin(input: {executionId: $id, text: "x"}) { offset } }`, in{"id": id}, &struct{}{})
	watch := func() {
		watcher := b.watch(watchExecution, in{"id": id})
		for e := (event{}); e.ExecutionEvents.Text != "x"; {
			e = event{}
			watcher.next(&e)
		}
		if err := watcher.conn.CloseNow(); err != nil {
			t.Fatal(err)
		}
	}
	watch() // when its output arrives, all goroutines of the execution are running
	before := goleak.IgnoreCurrent()
	for range 20 {
		watch()
	}
	wait.For(t, "the watchers' goroutines end", func() bool { return goleak.Find(before) == nil })
	var x struct{ Execution struct{ State string } }
	if b.send(`query($id: ID!) { execution(id: $id) { state } }`, in{"id": id}, &x); x.Execution.State != "RUNNING" {
		t.Errorf("it is %s, want RUNNING", x.Execution.State)
	}
	b.send(`mutation($id: ID!) { cancelExecution(id: $id) { execution { id } } }`, in{"id": id}, &struct{}{})
}

func TestPoolStatusIsASnapshotThenChanges(t *testing.T) {
	b := newBed(t)
	b.environment("a", 0)
	b.environment("b", 0)
	watcher := b.watch(`subscription { poolStatus { environmentId size deleted reason } }`, nil)
	type status struct {
		PoolStatus struct {
			EnvironmentID string
			Size          int
			Deleted       bool
		}
	}
	until := func(done func(status) bool) {
		t.Helper()
		for {
			var s status
			watcher.next(&s)
			if done(s) {
				return
			}
		}
	}
	seen := map[string]bool{}
	until(func(s status) bool { seen[s.PoolStatus.EnvironmentID] = true; return len(seen) == 2 })
	b.environment("c", 1)
	until(func(s status) bool { return s.PoolStatus.EnvironmentID == "c" && s.PoolStatus.Size == 1 })
	b.send(`mutation { deleteEnvironment(input: {id: "c"}) { deleted } }`, nil, &struct{}{})
	until(func(s status) bool { return s.PoolStatus.EnvironmentID == "c" && s.PoolStatus.Deleted })
}

func TestErrorsOfTheEngineAreTyped(t *testing.T) {
	b := newBed(t)
	b.environment("a", 1)
	b.environment("empty", 0)
	runner := b.claim("a")
	for _, test := range []struct {
		query string
		code  string
		field any
	}{
		{`mutation { claimRunner(input: {environmentId: "nope"}) { runner { id } } }`, "ENVIRONMENT_NOT_FOUND", nil},
		{`mutation { claimRunner(input: {environmentId: "a", waitFor: -1}) { runner { id } } }`, "INVALID_INPUT", "waitFor"},
		{`mutation { putEnvironment(input: {id: "-"}) { created } }`, "INVALID_INPUT", "id"},
		{`mutation { putEnvironment(input: {id: "x", poolSize: -1}) { created } }`, "INVALID_INPUT", "poolSize"},
		{`mutation { putEnvironment(input: {id: "x", resources: {cpuMHz: 0}}) { created } }`, "INVALID_INPUT", "resources.cpuMHz"},
		{`mutation { putEnvironment(input: {id: "a", ifRevision: 7}) { created } }`, "CONFLICT", nil},
		{`{ runners(labels: [{name: ""}]) { totalCount } }`, "INVALID_INPUT", "labels"},
		{`{ runners(from: "2026-01-02T00:00:00Z", to: "2026-01-02T00:00:00Z") { totalCount } }`, "INVALID_INPUT", "to"},
		{`{ executions(labels: [{name: ""}]) { totalCount } }`, "INVALID_INPUT", "labels"},
		{`{ executions(from: "2026-01-02T00:00:00Z", to: "2026-01-01T00:00:00Z") { totalCount } }`, "INVALID_INPUT", "to"},
		{`{ executions(command: "` + strings.Repeat("x", 4097) + `") { totalCount } }`, "INVALID_INPUT", "command"},
		{`{ executions(text: "` + strings.Repeat("x", 4097) + `") { totalCount } }`, "INVALID_INPUT", "text"},
		{`mutation { startExecution(input: {runnerId: "gone", command: ["true"]}) { execution { id } } }`, "RUNNER_GONE", nil},
		{`mutation { startExecution(input: {runnerId: "` + runner + `", command: []}) { execution { id } } }`, "INVALID_INPUT", "command"},
		{`mutation { updateFiles(input: {runnerId: "gone", delete: ["./*"]}) { deleted } }`, "RUNNER_GONE", nil},
		{`mutation { writeStdin(input: {executionId: "nope", close: true}) { offset } }`, "EXECUTION_NOT_FOUND", nil},
		{`mutation { cancelExecution(id: "nope") { execution { id } } }`, "EXECUTION_NOT_FOUND", nil},
		{`mutation { renewRunner(id: "gone") { runner { id } } }`, "RUNNER_GONE", nil},
		{`{ execution(id: "nope") { id } }`, "EXECUTION_NOT_FOUND", nil},
	} {
		if code, field := b.send(test.query, nil, nil); code != test.code || field != test.field {
			t.Errorf("%s: %v, field %v", test.query, code, field)
		}
	}
	var none struct{ Environment, Runner *struct{} }
	b.send(`{ environment(id: "nope") { id } runner(id: "nope") { id } }`, nil, &none)
	if none.Environment != nil || none.Runner != nil {
		t.Errorf("%+v", none)
	}
	watcher := b.watch(watchExecution, in{"id": "nope"})
	often := b.watch(`subscription($id: ID!) { executionEvents(executionId: $id) { ... on ExecutionOutput { text base64 ...f } } } fragment f on ExecutionOutput { again: base64 text }`, in{"id": "none"})
	if got := string(often.receive("next").Payload); !strings.Contains(got, "LIMIT_EXCEEDED") {
		t.Errorf("base64 twice: %s", got)
	}
	if got := string(watcher.receive("next").Payload); !strings.Contains(got, "EXECUTION_NOT_FOUND") {
		t.Errorf("got %s", got)
	}
	watcher.receive("complete")
}

// Stopping the server ends subscriptions without waiting for their readers.
func TestStoppingEndsSubscriptions(t *testing.T) {
	var watcher client
	t.Run("served", func(t *testing.T) {
		b := newBed(t)
		b.environment("a", 0)
		watcher = b.watch(`subscription { poolStatus { idle } }`, nil)
		watcher.receive("next")
		watcher.t = t
	})
	for {
		if _, _, err := watcher.conn.Read(context.Background()); err != nil {
			return
		}
	}
}
