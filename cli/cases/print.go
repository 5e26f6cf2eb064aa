package cases

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/runtime"
)

// stderrLines is the number of last lines on stderr that are shown for a failed case.
const stderrLines = 10

// print prints a case's line. For a failed case it adds the reason and the end of stderr.
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

// width returns the length of the longest name, at most 30.
func (j *Job) width() (width int) {
	for _, c := range j.Cases {
		width = max(width, len(c.Name))
	}
	return min(width, 30)
}

// why describes how a program ended.
func (r Result) why() string {
	if r.Message != "" {
		return r.Message
	}
	return string(r.Outcome)
}

// last returns at most most lines from the end of a text, nil if the text is empty.
func last(text []byte, most int) [][]byte {
	lines := bytes.Split(bytes.TrimRight(text, "\n"), []byte("\n"))
	if len(lines) == 1 && len(lines[0]) == 0 {
		return nil
	}
	return lines[max(0, len(lines)-most):]
}

// Summary returns the result of the job in one line.
func (r Report) Summary() string {
	text := fmt.Sprintf("%d of %d cases passed", r.Passed(), len(r.Cases))
	if n := r.count(runtime.CaseSkipped); n > 0 {
		text += fmt.Sprintf(", %d skipped", n)
	}
	if r.Batch.Outcome == runtime.BatchCompleted || r.Batch.Outcome == runtime.BatchStopped {
		return text
	}
	return text + ": " + r.Batch.Message
}
