package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/cli/cases"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/language"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/test/wait"
)

// spoken returns languages whose commands the fake cluster knows.
func spoken() *language.Set {
	return language.Of(
		language.Recipe{ID: "said", Name: "Said", Extensions: []string{".said"}, FileName: "a.said", Run: []string{"echo", "ran", "{file}", "{args}"},
			Version: []string{"echo", "1.5"}, VersionPattern: "(.*)", Environments: []runtime.EnvironmentID{"absent", "speaking"}},
		language.Recipe{ID: "built", Name: "Built", Extensions: []string{".built"}, FileName: "a.built", Build: []string{"echo", "building", "{file}"},
			Run: []string{"echo", "ran", "{file}"}, Environments: []runtime.EnvironmentID{"speaking"}},
		language.Recipe{ID: "broken", Name: "Broken", Extensions: []string{".broken"}, FileName: "a.broken", Build: []string{"stderr", "line", "7"},
			Run: []string{"echo", "ran"}, Environments: []runtime.EnvironmentID{"speaking"}},
		language.Recipe{ID: "offline", Name: "Offline", Extensions: []string{".offline"}, FileName: "a.offline", Build: []string{"stderr", "could not resolve host"},
			Run: []string{"true"}, Environments: []runtime.EnvironmentID{"speaking"}},
		language.Recipe{ID: "placed", Name: "Placed", Extensions: []string{".placed"}, FileName: "a.placed", Build: []string{"pwd"}, Run: []string{"pwd"},
			Environments: []runtime.EnvironmentID{"speaking"}},
		language.Recipe{ID: "lonely", Name: "Lonely", Extensions: []string{".lonely"}, FileName: "a.lonely", Run: []string{"true"},
			Environments: []runtime.EnvironmentID{"absent"}, Image: "lonely:1", Limits: language.Limits{MemoryMiB: 600}},
	)
}

func speaking(t *testing.T, files ...string) *server {
	t.Helper()
	s := newServerWith(t, spoken())
	if _, _, err := s.engine.Environments.Put(access.With(t.Context(), access.Server()), request.Environment{ID: "speaking"}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ROCKPOOL_SERVER", s.url)
	t.Chdir(t.TempDir())
	for _, name := range files {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func TestRunChoosesTheEnvironmentByTheFile(t *testing.T) {
	s := speaking(t, "x.said", "x.lonely", "x.unknown", "x")
	for want, arguments := range map[string][]string{
		"ran x.said a b\n": {"run", "x.said", "a b"},
		"other\n":          {"run", "x.said", "--", "echo", "other"},
		"ran x.said\n":     {"run", "--env", "speaking", "x.said"},
		"alone\n":          {"run", "--env", "speaking", "--", "echo", "alone"},
	} {
		var out, errs bytes.Buffer
		if code := execute(nil, &out, &errs, arguments...); out.String() != want || code != 0 {
			t.Errorf("%q: %q %q %d", arguments, out.String(), errs.String(), code)
		}
	}
	s.fails("no environment serves lonely: create one with `rockpool env put absent --memory 600MiB` if the server's machine has the language, else with `rockpool env put absent --image lonely:1 --memory 600MiB`", "run", "x.lonely")
	s.fails("x.unknown has no known file extension", "run", "x.unknown")
}

func TestRunBuildsFirst(t *testing.T) {
	s := speaking(t, "x.built", "x.broken")
	if out, errs, code := s.command("run", "x.built"); out != "ran x.built\n" || errs != "building x.built\n" || code != 0 {
		t.Errorf("%q %q %d", out, errs, code)
	}
	if out, errs, code := s.command("run", "x.broken"); out != "" || errs != "line 7\n" || code != 1 {
		t.Errorf("a build that fails: %q %q %d", out, errs, code)
	}
}

// TestFilesRunInTheWorkspace, even if the image has another working directory.
func TestFilesRunInTheWorkspace(t *testing.T) {
	s := speaking(t, "x.placed")
	if out, errs, code := s.command("run", "x.placed"); out != runtime.Workspace+"\n" || errs != out || code != 0 {
		t.Errorf("%q %q %d", out, errs, code)
	}
}

func TestCommandsRunInTheDirectoryOfTheirFiles(t *testing.T) {
	s := speaking(t, "data.txt")
	if out, errs, code := s.command("run", "--env", "speaking", "--file", "data.txt", "--", "pwd"); out != runtime.Workspace+"\n" || errs != "" || code != 0 {
		t.Errorf("%q %q %d", out, errs, code)
	}
}

func TestFailedBuildsGetAHint(t *testing.T) {
	t.Setenv("ROCKPOOL_HINTS", "1")
	s := speaking(t, "x.offline")
	s.fails("hint: the environment speaking has no network access", "run", "x.offline")
}

func TestCasesAreBuiltByTheRecipe(t *testing.T) {
	s := speaking(t, "x.built", "x.broken")
	if err := os.Mkdir("cases", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"1.in": "", "1.out": "ran x.built"} {
		if err := os.WriteFile(filepath.Join("cases", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, errs, code := s.command("run", "--cases", "cases", "x.built"); code != 0 || !strings.Contains(out, "1 of 1 cases passed") || !strings.Contains(errs, "building x.built") {
		t.Errorf("%q %q %d", out, errs, code)
	}
	if out, errs, code := s.command("run", "--cases", "cases", "x.broken"); code != 1 || !strings.Contains(errs, "line 7") {
		t.Errorf("a build that fails: %q %q %d", out, errs, code)
	}
	s.fails("--build replaces `echo building x.built`", "run", "--cases", "cases", "--build", "true", "x.built")
	s.fails("--fresh-runners can't be used with a program that is built", "run", "--cases", "cases", "--fresh-runners", "x.built")
}

// TestBatchCountsIncludeUnexpectedOutputs: the server doesn't know the expected outputs, so the
// report has its own counts.
func TestBatchCountsIncludeUnexpectedOutputs(t *testing.T) {
	s := speaking(t)
	if err := os.Mkdir("cases", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"1.in", "2.in", "3.in"} {
		if err := os.WriteFile(filepath.Join("cases", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, wrong := range []string{"1", "3"} {
		if err := os.WriteFile(filepath.Join("cases", wrong+".out"), []byte("other"), 0o600); err != nil {
			t.Fatal(err)
		}
		out, errs, code := s.command("run", "--env", "speaking", "--cases", "cases", "--stop-on-failure", "--json", "--", "echo", "x")
		var report cases.Report
		if err := json.Unmarshal([]byte(out), &report); err != nil || code != 1 {
			t.Fatal(err, out, errs, code)
		}
		skipped := len(report.Cases) - report.Passed() - report.Failed()
		if b := report.Batch; report.Failed() != 1 || b.FailedCount != 1 || b.SkippedCount != skipped || b.EndedCount != 3-skipped || b.Outcome == runtime.BatchCancelled {
			t.Errorf("%s", out)
		}
		if err := os.Remove(filepath.Join("cases", wrong+".out")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLanguagesAreListed(t *testing.T) {
	s := speaking(t)
	out := s.works("languages")
	for _, want := range []string{"said Said .said speaking", "lonely Lonely .lonely -"} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("%s\nwant %q", out, want)
		}
	}
	wait.For(t, "the version is measured", func() bool { // for which the API waits 3 s
		return strings.Contains(strings.Join(strings.Fields(s.works("languages", "--versions")), " "), "said Said .said speaking 1.5")
	})
	if out := s.works("languages", "--json"); !strings.Contains(out, `"environmentId": "speaking"`) || strings.Contains(out, `"version"`) {
		t.Error(out)
	}
}
