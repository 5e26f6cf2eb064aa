package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/e2e/bed"
)

// A linePage is the answer of Execution.lines.
type linePage struct {
	Lines []struct {
		Number    int64
		Stream    string
		Text      string
		LostBytes int64
	}
	Before, Total int64
	Counted       bool
	Next          *int64
}

// TestE2ELines reads a page in the middle of 50 MB in a million lines, and finds a line, through
// the API and the command.
func TestE2ELines(t *testing.T) {
	b := bed.Open(t)
	b.Put(t, object{"id": "lines", "poolSize": 1, "outputLimit": 200_000_000})
	runner := b.Claim(t, "lines")
	const half, size = 500_000, 1_000_002
	shell := fmt.Sprintf(`seq -f 'line %%07.0f of this output, which is long: abcdefghijk' %d; echo 'the Needle' >&2; sleep 0.2; seq -f 'line %%07.0f of this output, which is long: abcdefghijk' %d 1000000; printf 'the end'`, half, half+1)
	x := b.Start(t, object{"runnerId": runner, "shell": shell})
	if got := b.Await(t, x); got.Outcome != "EXITED" || got.Usage.OutputBytes < 50_000_000 {
		t.Fatalf("%+v", got)
	}
	lines := func(args string) linePage {
		t.Helper()
		var got struct{ Execution struct{ Lines linePage } }
		for !got.Execution.Lines.Counted { // each request counts 32 MiB
			b.Call(t, `query($id: ID!) { execution(id: $id) { lines(`+args+`) { lines { number stream text lostBytes } before total counted next } } }`, object{"id": x}, &got)
		}
		return got.Execution.Lines
	}
	text := func(n int) string { return fmt.Sprintf("line %07d of this output, which is long: abcdefghijk", n) }

	middle := lines(fmt.Sprintf("from: %d, maxLines: 3", half))
	if middle.Total != size || middle.Before != half-1 || len(middle.Lines) != 3 || *middle.Next != half+3 {
		t.Fatalf("%+v", middle)
	}
	found := lines(`containing: "NEEDLE"`)
	for found.Next != nil && len(found.Lines) == 0 {
		found = lines(fmt.Sprintf(`containing: "NEEDLE", from: %d`, *found.Next))
	}
	if len(found.Lines) != 1 || found.Lines[0].Text != "the Needle" || found.Lines[0].Stream != "STDERR" {
		t.Fatalf("%+v", found)
	}
	// The two streams are two pipes. So the needle's position among the other lines depends on when each
	// was read.
	needle := found.Lines[0].Number
	around := lines(fmt.Sprintf("from: %d, maxLines: 3", needle-1))
	if len(around.Lines) != 3 || around.Lines[0].Text != text(int(needle-1)) || around.Lines[1].Text != "the Needle" || around.Lines[2].Text != text(int(needle)) {
		t.Errorf("%+v", around)
	}
	if alone := lines(`stream: STDERR`); alone.Total != 1 || len(alone.Lines) != 1 || alone.Lines[0].Number != needle || alone.Next != nil {
		t.Errorf("%+v", alone)
	}
	if skipped := lines(`stream: STDOUT, skip: 999999`); skipped.Total != size-1 || len(skipped.Lines) != 2 || skipped.Lines[0].Text != text(1_000_000) || skipped.Lines[1].Text != "the end" || skipped.Lines[1].Number != size || skipped.Next != nil {
		t.Errorf("%+v", skipped)
	}
	b.Refused(t, `query($id: ID!) { execution(id: $id) { lines(maxLines: 1001) { total } } }`, object{"id": x}, runtime.CodeInvalidInput, "maxLines")

	if got := b.Works(t, "exec", "logs", x, "--search", "needle", "-n"); got != fmt.Sprintf("%7d  the Needle\n", needle) {
		t.Error(got)
	}
	if got := b.Works(t, "exec", "logs", x, "--lines", "700000-700001"); !strings.HasPrefix(got, "line 0699999 ") || strings.Count(got, "\n") != 2 {
		t.Error(got)
	}
	if got := b.Works(t, "exec", "logs", x, "--last", "1"); got != "the end\n" {
		t.Error(got)
	}
}
