package languages

import (
	"strings"
	"testing"
)

// TestDifferencesAreFound: each kind of expectation fails when something else comes.
func TestDifferencesAreFound(t *testing.T) {
	text := func(s string) *string { return &s }
	right := Came{Outcome: "EXITED", ExitCode: new(0), Stdout: "out\n", Stderr: "err", Message: "exited with code 0", PeakMiB: 5, Processes: 2, CPUMs: 7}
	if wrong := right.wrong(Want{Stdout: text("out\n"), StderrMatches: "^err$", Message: "code", Peak: &Range{4, 6}, Processes: &Range{2, 2}, CPU: &Range{7, 7}}); len(wrong) > 0 {
		t.Errorf("right: %q", wrong)
	}
	for part, want := range map[string]Want{
		"outcome":   {Outcome: "SIGNALED"},
		"exit code": {Exit: 1},
		"signal":    {Signal: "SIGSEGV"},
		"stdout":    {Stdout: text("out")},
		"stderr":    {StderrMatches: "^e$"},
		"message":   {Message: "killed"},
		"hint":      {Hint: "network"},
		"peak":      {Peak: &Range{0, 4.9}},
		"processes": {Processes: &Range{3, 9}},
		"CPU":       {CPU: &Range{8, 9}},
	} {
		if wrong := right.wrong(want); len(wrong) != 1 || !strings.HasPrefix(wrong[0], part) {
			t.Errorf("%s: %q", part, wrong)
		}
	}
}

// TestDifferencesOfPlatforms: a program that differs on a platform must differ there, as its row says.
func TestDifferencesOfPlatforms(t *testing.T) {
	exits := func(code int) Came { return Came{Outcome: "EXITED", ExitCode: &code} }
	row := Program{Want: Want{Exit: 0}, On: map[string]Difference{
		"gvisor": {Reason: "why", Want: &Want{Exit: 3}},
		"nomad":  {Reason: "why"},
	}}
	for _, test := range []struct {
		platform, pending string
		code              int
		how               string
	}{
		{"host", "", 0, "passed"},
		{"host", "", 1, "failed"},
		{"host", "why", 0, "failed"},
		{"host", "why", 1, "pending"},
		{"gvisor", "", 0, "failed"},
		{"gvisor", "", 1, "failed"},
		{"gvisor", "", 3, "differs"},
		{"nomad", "", 0, "failed"},
		{"nomad", "", 1, "differs"},
	} {
		row.Pending = test.pending
		if how, wrong := row.judge(test.platform, exits(test.code)); how != test.how {
			t.Errorf("exit %d on %s, pending %q: %s (%q), want %s", test.code, test.platform, test.pending, how, wrong, test.how)
		}
	}
}
