package graph

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/test/wait"
)

const watchBatch = `subscription($id: ID!, $after: Cursor) { batchEvents(batchId: $id, after: $after) {
	__typename cursor
	... on BatchExecutionEvent { caseIndex executionId event { __typename
		... on ExecutionOutput { stream text } ... on ExecutionFinished { execution { id outcome } } } }
	... on BatchFinished { batch { id outcome skippedCount } }
} }`

type batchEvent struct {
	BatchEvents struct {
		Typename    string `json:"__typename"`
		Cursor      string
		CaseIndex   *int
		ExecutionID string
		Event       struct {
			Typename  string `json:"__typename"`
			Text      string
			Execution struct{ ID, Outcome string }
		}
		Batch struct {
			ID, Outcome  string
			SkippedCount int
		}
	}
}

type batchCases struct {
	Batch struct {
		State, Outcome, Message, RunnerID, EnvironmentID, FinishedAt string
		HasBuild, StopOnFailure, FreshRunners                        bool
		CaseCount, EndedCount, FailedCount, SkippedCount             int
		Build                                                        *struct {
			BatchID   string
			CaseIndex *int
			ExitCode  int
		}
		Cases struct {
			TotalCount int
			PageInfo   struct {
				HasNextPage bool
				EndCursor   string
			}
			Nodes []struct {
				Index     int
				State     string
				Execution *struct {
					BatchID   string
					CaseIndex int
					ExitCode  int
					Output    struct{ Chunks []struct{ Text string } }
				}
			}
		}
	}
}

const getBatch = `query($id: ID!, $after: String) { batch(id: $id) {
	state outcome message runnerId environmentId finishedAt hasBuild stopOnFailure freshRunners caseCount endedCount failedCount skippedCount
	build { batchId caseIndex exitCode }
	cases(first: 2, after: $after) { totalCount pageInfo { hasNextPage endCursor } nodes { index state execution { batchId caseIndex exitCode output { chunks { text } } } } }
} }`

func TestBatchOverTheAPI(t *testing.T) {
	b := newBed(t)
	b.environment("python", 1)
	runner := b.claim("python")
	var started struct {
		StartExecution struct {
			Execution struct {
				ID      string
				Command []string
			}
			Batch struct{ ID string }
		}
	}
	input := in{"runnerId": runner, "command": []string{"exit"}, "stopOnFailure": true, "build": in{"shell": "echo built"},
		"cases": []in{{"args": []string{"0"}, "stdin": "x"}, {"args": []string{"9"}, "stdinBase64": "AP8=", "timeLimit": 3, "limits": in{"cpuSeconds": 2}}, {}}}
	b.send(`mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id command } batch { id } } }`, in{"in": input}, &started)
	id := started.StartExecution.Batch.ID
	if id == "" || !slices.Equal(started.StartExecution.Execution.Command, []string{"/bin/sh", "-c", "echo built"}) {
		t.Fatalf("%+v", started)
	}

	watcher := b.watch(watchBatch, in{"id": id})
	var words []string
	var last batchEvent
	for last.BatchEvents.Typename != "BatchFinished" {
		last = batchEvent{}
		watcher.next(&last)
		e := last.BatchEvents
		which := "build"
		if e.CaseIndex != nil {
			which = fmt.Sprint(*e.CaseIndex)
		}
		words = append(words, strings.TrimSpace(fmt.Sprint(which, " ", strings.TrimPrefix(e.Event.Typename, "Execution"), " ", e.Event.Text)))
		if e.Event.Execution.ID != "" && e.Event.Execution.ID != e.ExecutionID {
			t.Errorf("%+v", e)
		}
	}
	watcher.receive("complete")
	want := []string{"build Started", "build Output built", "build Finished", "0 Started", "0 Finished", "1 Started", "1 Finished", "build"}
	if !slices.Equal(words, want) || last.BatchEvents.Batch.Outcome != "STOPPED" || last.BatchEvents.Batch.SkippedCount != 1 || last.BatchEvents.Batch.ID != id {
		t.Errorf("%q, want %q; %+v", words, want, last.BatchEvents)
	}

	var page batchCases
	b.send(getBatch, in{"id": id}, &page)
	got := page.Batch
	if got.State != "FINISHED" || got.Outcome != "STOPPED" || got.Message == "" || got.RunnerID != runner || got.EnvironmentID != "python" || got.FinishedAt == "" ||
		!got.HasBuild || !got.StopOnFailure || got.FreshRunners || got.CaseCount != 3 || got.EndedCount != 2 || got.FailedCount != 1 || got.SkippedCount != 1 {
		t.Errorf("%+v", got)
	}
	if got.Build == nil || got.Build.CaseIndex != nil || got.Build.BatchID != id {
		t.Errorf("%+v", got.Build)
	}
	nodes := got.Cases.Nodes
	if len(nodes) != 2 || nodes[0].State != "PASSED" || nodes[1].State != "FAILED" || nodes[1].Execution.ExitCode != 9 || nodes[1].Execution.CaseIndex != 1 ||
		nodes[1].Execution.BatchID != id || got.Cases.TotalCount != 3 || !got.Cases.PageInfo.HasNextPage {
		t.Errorf("%+v", got.Cases)
	}
	page = batchCases{}
	b.send(getBatch, in{"id": id, "after": got.Cases.PageInfo.EndCursor}, &page)
	if rest := page.Batch.Cases; len(rest.Nodes) != 1 || rest.Nodes[0].State != "SKIPPED" || rest.Nodes[0].Execution != nil || rest.Nodes[0].Index != 2 || rest.PageInfo.HasNextPage {
		t.Errorf("%+v", rest)
	}
	var list struct {
		Batches struct {
			TotalCount int
			Nodes      []struct{ ID, Outcome string }
		}
	}
	b.send(`query($id: ID!) { batches(runnerId: $id, newestFirst: true) { totalCount nodes { id outcome } } }`, in{"id": runner}, &list)
	if list.Batches.TotalCount != 1 || list.Batches.Nodes[0].ID != id || list.Batches.Nodes[0].Outcome != "STOPPED" {
		t.Errorf("%+v", list)
	}
}

func TestRunOfABatchOverTheAPI(t *testing.T) {
	b := newBed(t)
	b.environment("python", 1)
	for _, fresh := range []bool{false, true} {
		var run struct {
			Run struct {
				Batch struct {
					ID       string
					RunnerID *string
				}
			}
		}
		b.send(`mutation($in: RunInput!) { run(input: $in) { batch { id runnerId } } }`, in{"in": in{"environmentId": "python", "command": []string{"cat"}, "waitFor": 30,
			"freshRunners": fresh, "cases": []in{{"stdin": "one"}, {"stdinBase64": "dHdv"}}}}, &run)
		if (run.Run.Batch.RunnerID == nil) != fresh {
			t.Errorf("%+v", run)
		}
		var page batchCases
		wait.For(t, "the batch ends", func() bool {
			page = batchCases{}
			b.send(getBatch, in{"id": run.Run.Batch.ID}, &page)
			return page.Batch.State == "FINISHED"
		})
		for i, want := range []string{"one", "two"} {
			if x := page.Batch.Cases.Nodes[i].Execution; len(x.Output.Chunks) != 1 || x.Output.Chunks[0].Text != want {
				t.Errorf("fresh %v, case %d: %+v", fresh, i, x)
			}
		}
	}
}

func TestExpectedOutputsOverTheAPI(t *testing.T) {
	b := newBed(t)
	b.environment("python", 1)
	var run struct {
		Run struct{ Batch struct{ ID string } }
	}
	b.send(`mutation($in: RunInput!) { run(input: $in) { batch { id } } }`, in{"in": in{"environmentId": "python", "command": []string{"cat"}, "waitFor": 30, "cases": []in{
		{"stdin": "one\n", "expectedOutput": "one"}, {"stdin": "one", "expectedOutputBase64": "dHdv", "compare": "EXACT"}, {"stdin": "one", "expectedOutputBase64": ""}, {"stdin": "one"},
	}}}, &run)
	watcher := b.watch(`subscription($id: ID!) { batchEvents(batchId: $id) { __typename ... on BatchExecutionEvent { event { ... on ExecutionFinished { execution { comparison { matches } } } } } ... on BatchFinished { batch { failedCount } } } }`, in{"id": run.Run.Batch.ID})
	matches := ""
	for last := ""; last != "BatchFinished"; {
		var e struct {
			BatchEvents struct {
				Typename string `json:"__typename"`
				Event    struct {
					Execution *struct{ Comparison *struct{ Matches *bool } }
				}
				Batch struct{ FailedCount int }
			}
		}
		watcher.next(&e)
		last = e.BatchEvents.Typename
		switch x := e.BatchEvents.Event.Execution; {
		case last == "BatchFinished":
			matches += fmt.Sprint("and ", e.BatchEvents.Batch.FailedCount)
		case x != nil && x.Comparison == nil:
			matches += "none "
		case x != nil:
			matches += fmt.Sprint(*x.Comparison.Matches, " ")
		}
	}
	if want := "true false false none and 2"; matches != want {
		t.Errorf("%s, want %s", matches, want)
	}
	var page struct {
		Batch struct {
			Cases struct {
				Nodes []struct {
					State     string
					Execution struct {
						Comparison struct {
							Mode       string
							Message    *string
							Difference *struct {
								Line             int
								Expected, Actual *string
							}
						}
					}
				}
			}
		}
	}
	b.send(`query($id: ID!) { batch(id: $id) { cases(first: 3) { nodes { state execution { comparison { mode message difference { line expected actual } } } } } } }`, in{"id": run.Run.Batch.ID}, &page)
	nodes := page.Batch.Cases.Nodes
	first, second, third := nodes[0].Execution.Comparison, nodes[1].Execution.Comparison, nodes[2].Execution.Comparison
	if nodes[0].State != "PASSED" || first.Mode != "TRIMMED" || first.Message != nil || first.Difference != nil {
		t.Errorf("%+v", nodes[0])
	}
	if nodes[1].State != "FAILED" || second.Mode != "EXACT" || *second.Message == "" || second.Difference.Line != 1 || *second.Difference.Expected != "two" || *second.Difference.Actual != "one" {
		t.Errorf("%+v", nodes[1])
	}
	if third.Difference.Expected != nil || *third.Difference.Actual != "one" {
		t.Errorf("nothing is expected: %+v", third)
	}
}

func TestCancelledBatchOverTheAPI(t *testing.T) {
	b := newBed(t)
	b.environment("python", 1)
	var started struct {
		StartExecution struct{ Batch struct{ ID string } }
	}
	b.send(`mutation($in: StartExecutionInput!) { startExecution(input: $in) { batch { id } } }`,
		in{"in": in{"runnerId": b.claim("python"), "command": []string{"sleep", "3600"}, "cases": []in{{}, {}}}}, &started)
	var cancelled struct {
		CancelBatch struct{ Batch struct{ Outcome string } }
	}
	b.send(`mutation($id: ID!) { cancelBatch(id: $id) { batch { outcome } } }`, in{"id": started.StartExecution.Batch.ID}, &cancelled)
	if cancelled.CancelBatch.Batch.Outcome != "CANCELLED" {
		t.Errorf("%+v", cancelled)
	}
}

func TestInvalidBatchesAreRefused(t *testing.T) {
	b := newBed(t)
	b.environment("python", 1)
	runner := b.claim("python")
	start := `mutation($in: StartExecutionInput!) { startExecution(input: $in) { batch { id } } }`
	for field, more := range map[string]in{
		"cases":                  {"cases": []in{}},
		"build":                  {"build": in{"shell": "x"}},
		"stopOnFailure":          {"stopOnFailure": true},
		"stdin":                  {"cases": []in{{}}, "stdin": true},
		"cases.0.stdin":          {"cases": []in{{"stdin": "", "stdinBase64": ""}}},
		"cases.0.expectedOutput": {"cases": []in{{"expectedOutput": "", "expectedOutputBase64": ""}}},
		"cases.0.compare":        {"cases": []in{{"compare": "EXACT"}}},
		"cases.0.tolerance":      {"cases": []in{{"expectedOutput": "", "tolerance": 0.5}}},
		"cases.0.timeLimit":      {"cases": []in{{"timeLimit": -1}}},
	} {
		input := in{"runnerId": runner, "command": []string{"true"}}
		for name, value := range more {
			input[name] = value
		}
		if code, at := b.send(start, in{"in": input}, nil); code != "INVALID_INPUT" || at != field {
			t.Errorf("%v: %v for %v", more, code, at)
		}
	}
	if code, at := b.send(`mutation($in: RunInput!) { run(input: $in) { batch { id } } }`,
		in{"in": in{"environmentId": "python", "command": []string{"true"}, "build": in{"shell": "x"}, "freshRunners": true, "cases": []in{{}}}}, nil); code != "INVALID_INPUT" || at != "freshRunners" {
		t.Error(code, at)
	}
	for query, want := range map[string]string{
		`query($id: ID!) { batch(id: $id) { id } }`:                              "BATCH_NOT_FOUND",
		`query($id: ID!) { batches(runnerId: $id, first: 1001) { totalCount } }`: "INVALID_INPUT",
		`mutation($id: ID!) { cancelBatch(id: $id) { batch { id } } }`:           "BATCH_NOT_FOUND",
	} {
		if code, _ := b.send(query, in{"id": "none"}, nil); code != want {
			t.Errorf("%s: got %v, want %v", query, code, want)
		}
	}
	for query, want := range map[string]string{
		watchBatch: "BATCH_NOT_FOUND",
		`subscription($id: ID!) { batchEvents(batchId: $id) { ... on BatchExecutionEvent { event { ... on ExecutionOutput { a: text b: text } } } } }`: "LIMIT_EXCEEDED",
		`subscription($id: ID!) { batchEvents(batchId: $id) { ... on BatchExecutionEvent { a: event { cursor } b: event { cursor } } } }`:              "LIMIT_EXCEEDED",
	} {
		if got := b.watch(query, in{"id": "none"}).receive("next"); !strings.Contains(string(got.Payload), want) {
			t.Errorf("%s: %s", query, got.Payload)
		}
	}
}
