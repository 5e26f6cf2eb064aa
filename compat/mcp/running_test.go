package mcp

import (
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/language"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/test/wait"
)

// Clients end a call after a minute, and cancel its program. So a call answers earlier, and the
// program continues. The last read has all that a result of run_program would have.
func TestLongProgramsOutlastTheirCall(t *testing.T) {
	b := newBed(t, func(a *API) { a.within = 100 * time.Millisecond })
	a := b.agent(firstToken)
	var session openResult
	a.call("open_session", object{"environment": "shell"}, &session)
	for name, test := range map[string]struct {
		tool string
		arguments
		end     func(id runtime.ExecutionID) error // after a read that had no result
		outcome runtime.Outcome
		said    string // in the last read
	}{
		"run_program": {"run_program", arguments{}, func(id runtime.ExecutionID) error {
			_, err := b.engine.Executions.Cancel(access.With(t.Context(), access.Server()), id)
			return err
		}, runtime.OutcomeCancelled, "cancelled"},
		"execute": {"execute", arguments{}, func(id runtime.ExecutionID) error {
			_, err := b.engine.Executions.Cancel(access.With(t.Context(), access.Server()), id)
			return err
		}, runtime.OutcomeCancelled, "cancelled"},
		"a signal": {"run_program", arguments{}, func(id runtime.ExecutionID) error {
			_, err := b.engine.Executions.Signal(access.With(t.Context(), access.Server()), id, "USR1")
			return err
		}, runtime.OutcomeSignaled, "ended by SIGUSR1"},
		"a limit": {"run_program", arguments{TimeLimit: 2}, func(runtime.ExecutionID) error { return nil }, runtime.OutcomeTimeLimit, "may have been buffered"},
	} {
		test.Command = []string{"sleep", "600"}
		if test.Environment = "shell"; test.tool == "execute" {
			test.Environment, test.Session = "", session.Session
		}
		var got ran
		result := a.call(test.tool, test.arguments, &got)
		if !got.Running || got.Outcome != "" || got.ExitCode != nil || got.Cursor == "" || (got.Session != "") != (test.tool == "run_program") {
			t.Errorf("%s: %+v", name, got)
		}
		if text := textIn(result); !strings.Contains(text, "still runs") || !strings.Contains(text, got.Cursor) {
			t.Errorf("%s: %s", name, text)
		}
		read := page{Cursor: got.Cursor}
		for reads := 0; !read.End; reads++ {
			cursor, began := read.Cursor, time.Now()
			read = page{}
			result = a.call("read_output", object{"execution": got.Execution, "cursor": cursor}, &read)
			if took := time.Since(began); !read.End && took < b.api.within {
				t.Errorf("%s: a read waited only %v", name, took)
			}
			if reads == 0 {
				if err := test.end(runtime.ExecutionID(got.Execution)); err != nil {
					t.Error(err)
				}
			}
		}
		if read.Outcome != test.outcome || (read.Signal != "") != (test.outcome == runtime.OutcomeSignaled) ||
			(read.Hint != "") != (test.outcome == runtime.OutcomeTimeLimit) || !strings.Contains(textIn(result), test.said) {
			t.Errorf("%s: %+v: %s", name, read, textIn(result))
		}
		if got.Session != "" { // its files are still there
			a.call("list_files", object{"session": got.Session}, &listing{})
			a.call("close_session", object{"session": got.Session}, &closeResult{})
		}
	}
	a.call("close_session", object{"session": session.Session}, &closeResult{})
	b.freed()
}

// arguments are those of run_program and execute that the test above uses.
type arguments struct {
	Environment string   `json:"environment,omitempty"`
	Session     string   `json:"session,omitempty"`
	Command     []string `json:"command"`
	TimeLimit   int      `json:"timeLimit,omitempty"`
}

// A result of a running program has only whole characters: read_output returns the others.
func TestRunningProgramsShowWholeCharacters(t *testing.T) {
	for _, printed := range []int{1, half - 1, half, half + 1, 5 * half} {
		output, text := newPrinted(), strings.Repeat("a", printed)
		output.add(events.Event{Kind: events.Output, Stream: runtime.Stdout, Data: []byte(text + "\xe2\x82")})
		for outcome, want := range map[runtime.Outcome]string{"": "a", runtime.OutcomeExited: "\uFFFD"} {
			got := report(runtime.Execution{End: runtime.End{Outcome: outcome}}, output)
			if !strings.HasSuffix(got.Stdout, want) || outcome == "" && (strings.Contains(got.Stdout, "\uFFFD") || got.StdoutBase64 != "") {
				t.Errorf("%d bytes, %q: %q, %q", printed, outcome, got.Stdout[max(0, len(got.Stdout)-10):], got.StdoutBase64)
			}
		}
	}
}

// The standard input of a program that outlasts its call takes memory of the tenant until the program
// has read it, or has ended. Without memory the program is cancelled.
func TestInputThatOutlastsItsCallCounts(t *testing.T) {
	b := newBed(t, func(a *API) { a.within = 100 * time.Millisecond })
	arguments := object{"environment": "shell", "command": []string{"sleep", "600"}, "stdin": strings.Repeat("x", 900_000)}
	a := b.agent(firstToken) // its session has memory of its own
	b.api.services.Memory = quota.NewMemory(1)
	a.refused("run_program", arguments, runtime.CodeQuotaExceeded, "")
	b.freed()
	b.api.services.Memory = quota.NewMemory(16 << 20)
	var got ran
	a.call("run_program", arguments, &got)
	if used, _ := b.api.services.Memory.Usage(); !got.Running || used < 900_000 {
		t.Errorf("%d bytes are kept for %+v", used, got)
	}
	a.call("close_session", object{"session": got.Session}, nil)
	wait.For(t, "the input is freed", func() bool { used, _ := b.api.services.Memory.Usage(); return used == 0 })
}

// The time limit of a program isn't its build's: a compiler may take longer than the program.
func TestBuildsHaveTheirOwnTimeLimit(t *testing.T) {
	c, ok := language.Default().ByID("c")
	if !ok {
		t.Fatal("there is no C")
	}
	for _, limit := range []*int{nil, new(30)} {
		made, err := program{Source: "int main(void) {}", TimeLimit: new(2), BuildTimeLimit: limit}.plan(&c)
		if err != nil || made.limit != limit || *made.start.TimeLimit != 2 || made.build == nil {
			t.Errorf("%v: %+v, %v", limit, made, err)
		}
	}
}
