package cases

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/runtime"
)

// stderrLines is how many of the last lines on stderr are shown of a case that failed.
const stderrLines = 10

// print prints a case's line, and why it failed.
func (j *Job) print(r Result) error {
	if j.Quiet {
		return nil
	}
	word := "pass"
	if r.State != runtime.CasePassed {
		word = "FAIL"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s  %-*s  %5d ms", word, j.width(), output.Plain(r.Name), r.WallMs)
	switch {
	case r.Difference != "":
		fmt.Fprintf(&text, "  %s", output.Plain(r.Difference))
	case r.State != runtime.CasePassed:
		fmt.Fprintf(&text, "  %s", output.Plain(r.why()))
	}
	text.WriteByte('\n')
	if r.State != runtime.CasePassed {
		for _, line := range last(r.stderr, stderrLines) {
			fmt.Fprintf(&text, "      %s\n", output.Plain(strings.ToValidUTF8(string(line), "\uFFFD")))
		}
	}
	_, err := fmt.Fprint(j.Out, text.String())
	return err
}

// width is that of the longest name, up to some.
func (j *Job) width() (width int) {
	for _, c := range j.Cases {
		width = max(width, len(c.Name))
	}
	return min(width, 30)
}

// why returns in words how a program ended.
func (r Result) why() string {
	if r.Message != "" {
		return r.Message
	}
	return string(r.Outcome)
}

func last(text []byte, most int) [][]byte {
	lines := bytes.Split(bytes.TrimRight(text, "\n"), []byte("\n"))
	if len(lines) == 1 && len(lines[0]) == 0 {
		return nil
	}
	return lines[max(0, len(lines)-most):]
}

// Summary says in a line what came of it all.
func (r Report) Summary() string {
	text := fmt.Sprintf("%d of %d cases passed", r.Passed(), len(r.Cases))
	if n := r.count(runtime.CaseSkipped); n > 0 {
		text += fmt.Sprintf(", %d were skipped", n)
	}
	if r.Batch.Outcome == runtime.BatchCompleted || r.Batch.Outcome == runtime.BatchStopped {
		return text
	}
	return text + ": " + r.Batch.Message
}
