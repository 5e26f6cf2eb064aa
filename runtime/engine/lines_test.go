package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/executions"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/test/refusal"
	"github.com/rockpool/rockpool/test/wait"
)

// TestLines reads lines while they are printed, after the end, and after a restart.
func TestLines(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	x, err := b.Executions.Start(asServer(t), request.Start{RunnerID: b.claim(t, "a").ID, Command: []string{"cat"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	lines := func(q executions.LineQuery) (executions.LinePage, string) {
		t.Helper()
		if q.MaxLines == 0 {
			q.MaxLines = 10
		}
		page, err := b.Executions.Lines(asServer(t), x.ID, q)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, line := range page.Lines {
			out = append(out, fmt.Sprintf("%d %s", line.Number, line.Data))
		}
		return page, strings.Join(out, "|")
	}
	write := func(text string, end bool) {
		t.Helper()
		if _, err := b.Executions.WriteStdin(asServer(t), request.Stdin{ExecutionID: x.ID, Data: []byte(text), Close: end}); err != nil {
			t.Fatal(err)
		}
	}
	write("one\ntw", false)
	wait.For(t, "it is printed", func() bool { _, got := lines(executions.LineQuery{}); return got == "1 one|2 tw" })
	page, _ := lines(executions.LineQuery{})
	if last := page.Lines[1]; !last.Open || page.Next != 2 || page.More || page.Total != 2 || last.At.Before(x.Timestamps.QueuedAt) {
		t.Errorf("%+v", page)
	}
	write("o\nthree", true)
	if output, _ := b.events(t, x.ID, page.Cursor); output != "o\nthree" {
		t.Errorf("events after the page's cursor have %q", output)
	}
	b.await(t, x.ID)
	for range 2 {
		page, got := lines(executions.LineQuery{})
		if got != "1 one|2 two|3 three" || page.Next != 0 || page.Lines[2].Open {
			t.Errorf("%s, next %d", got, page.Next)
		}
		if _, got := lines(executions.LineQuery{From: ptr(int64(2)), MaxLines: 1}); got != "2 two" {
			t.Error(got)
		}
		if page, got := lines(executions.LineQuery{Last: true, MaxLines: 2}); got != "2 two|3 three" || page.Before != 1 {
			t.Error(got, page.Before)
		}
		if _, got := lines(executions.LineQuery{Containing: ptr("T")}); got != "2 two|3 three" {
			t.Error(got)
		}
		b.stop()
		b.start(t)
	}

	for field, q := range map[string]executions.LineQuery{
		"last":       {MaxLines: 1, Last: true, From: ptr(int64(1))},
		"maxLines":   {MaxLines: 1001},
		"from":       {MaxLines: 1, From: ptr(int64(0))},
		"skip":       {MaxLines: 1, From: ptr(int64(1)), Skip: ptr(int64(1))},
		"containing": {MaxLines: 1, Containing: ptr("")},
	} {
		_, err := b.Executions.Lines(asServer(t), x.ID, q)
		refusal.Want(t, err, runtime.CodeInvalidInput, field)
	}
	_, err = b.Executions.Lines(asServer(t), x.ID, executions.LineQuery{MaxLines: 1, Skip: ptr(int64(-1))})
	refusal.Want(t, err, runtime.CodeInvalidInput, "skip")
	_, err = b.Executions.Lines(asServer(t), "none", executions.LineQuery{MaxLines: 1})
	refusal.Want(t, err, runtime.CodeExecutionNotFound, "")
}
