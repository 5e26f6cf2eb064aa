package commands

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/cli/cases"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/e2e/bed"
)

func casesDir(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestE2ERunCases(t *testing.T) {
	b := bed.Open(t)
	files := map[string]string{"1.in": "one\n", "1.out": "one", "2.args": "-n\n", "2.in": "two", "2.out": "wrong\n", "10.args": "none", "README": ""}
	dir := casesDir(t, files)
	command := func(args ...string) (stdout, stderr string, code int) { // a server's address after -- would be the program's
		var out, errs bytes.Buffer
		code = bed.RunCLI(append([]string{"run", "--server", b.Address, "--env", "shell"}, args...), strings.NewReader(""), &out, &errs)
		return out.String(), errs.String(), code
	}
	run := func(dir string, more ...string) (stdout, stderr string, code int) {
		return command(append(append([]string{"--cases", dir}, more...), "--", "cat")...)
	}
	out, errs, code := run(dir, "--build", "echo building >&2")
	lines := strings.Split(out, "\n")
	if code != 1 || len(lines) < 5 || !strings.HasPrefix(lines[0], "pass  1 ") || !strings.HasPrefix(lines[1], "FAIL  2 ") || !strings.Contains(lines[1], `instead of "wrong"`) ||
		!strings.HasPrefix(lines[2], "FAIL  10 ") || !strings.Contains(lines[3], "No such file") || lines[len(lines)-2] != "1 of 3 cases passed" || !strings.Contains(errs, "building\n") {
		t.Errorf("%d: %s%s", code, out, errs)
	}

	// A wrong output stops it too.
	out, errs, code = run(casesDir(t, map[string]string{"1.in": "x", "1.out": "y", "2.in": "", "3.in": "", "4.args": "/dev/zero"}), "--stop-on-failure", "--json")
	var report cases.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 1 || len(report.Cases) != 4 {
		t.Fatalf("%d, %v: %s%s", code, err, out, errs)
	}
	if got := report.Batch; got.Outcome != runtime.BatchStopped || got.FailedCount != 1 || got.SkippedCount != 3 {
		t.Errorf("the server's verdict: %+v", got)
	}
	if first, last := report.Cases[0], report.Cases[3]; first.ExecutionID == "" || first.Truncated || first.State != runtime.CaseFailed || first.Difference == "" || first.Stdout != "x" || first.Outcome != runtime.OutcomeExited || last.State != runtime.CaseSkipped {
		t.Errorf("%+v", report)
	}

	// A missing compiler is a missing command.
	source := filepath.Join(casesDir(t, map[string]string{"x.cr": "puts 1"}), "x.cr")
	if out, errs, code := command("--cases", dir, "--variable", "PATH=/nowhere", source); code != 127 || !strings.Contains(out, "crystal: command not found") {
		t.Errorf("%d: %s%s", code, out, errs)
	}

	if out, errs, code := run(casesDir(t, map[string]string{"1.in": "", "2.in": ""})); code != 0 || !strings.HasSuffix(out, "2 of 2 cases passed\n") {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	numbers := casesDir(t, map[string]string{"1.in": "1  2.000001\n", "1.out": "1 2"})
	for compare, want := range map[string]int{"exact": 1, "trimmed": 1, "tokens": 1, "numbers": 0} {
		if out, errs, code := run(numbers, "--compare", compare); code != want {
			t.Errorf("%s: %d: %s%s", compare, code, out, errs)
		}
	}
	if out, errs, code := run(numbers, "--compare", "numbers", "--tolerance", "0.0000001"); code != 1 {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	large, _, code := run(casesDir(t, map[string]string{"1.in": strings.Repeat("x", 3<<20), "2.in": "y"}), "--json")
	if err := json.Unmarshal([]byte(large), &report); err != nil || code != 0 || !report.Cases[0].Truncated || len(report.Cases[0].Stdout) != 2<<20 || !report.Cases[1].Truncated {
		t.Errorf("%d, %v: a long report", code, err)
	}
	if out, errs, code := run(casesDir(t, map[string]string{"1.in": "", "2.in": ""}), "--fresh-runners"); code != 0 || !strings.HasSuffix(out, "2 of 2 cases passed\n") {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	if out, errs, code := run(dir, "--build", "echo no >&2; exit 3"); code != 1 || !strings.Contains(out, "3 skipped: the build failed") || !strings.Contains(errs, "no\n") {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	for says, args := range map[string][]string{
		"--build can't be used":   {"--cases", dir, "--build", "x", "--fresh-runners", "--", "cat"},
		"need --cases":            {"--build", "x", "--", "cat"},
		"--compare, --tolerance":  {"--compare", "tokens", "--", "cat"},
		"needs --compare numbers": {"--cases", dir, "--tolerance", "0.1", "--", "cat"},
		"--json need --cases":     {"--json", "--", "cat"},
		"--stdin and --tty":       {"--cases", dir, "--stdin", "--", "cat"},
		"0 cases":                 {"--cases", t.TempDir(), "--", "cat"},
		"no such file":            {"--cases", filepath.Join(dir, "none"), "--", "cat"},
		"no program is given":     {"--cases", dir},
	} {
		if _, errs, code := command(args...); code != 2 || !strings.Contains(errs, says) {
			t.Errorf("%v: %d %s, want %q", args, code, errs, says)
		}
	}
}
