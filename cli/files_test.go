package cli

import (
	"strings"
	"testing"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/files"
	"github.com/rockpool/rockpool/runtime/request"
)

func TestFindAndWatch(t *testing.T) {
	s := newServer(t)
	size := 1
	if _, _, err := s.engine.Environments.Put(access.With(t.Context(), access.Server()), request.Environment{ID: "e", PoolSize: &size}); err != nil {
		t.Fatal(err)
	}
	runner, err := s.engine.Runners.Claim(access.With(t.Context(), access.Server()), request.Claim{EnvironmentID: "e", WaitFor: new(60)})
	if err != nil {
		t.Fatal(err)
	}
	id := string(runner.ID)
	put := func(path, text string) {
		t.Helper()
		if _, err := s.engine.Files.Update(access.With(t.Context(), access.Server()), runner.ID, "write", files.Update{Write: []runtime.FileWrite{{Path: path, Data: []byte(text)}}}); err != nil {
			t.Fatal(err)
		}
	}
	put("a.py", "one\ntwo \x1b[2J\n")
	put("b.txt", "two\n")
	if out := s.works("runner", "find", id, "--name", "*.py"); out != "a.py\n" {
		t.Errorf("%q", out)
	}
	if out := s.works("runner", "find", id, "--containing", "two"); out != "a.py:2:two ·[2J\nb.txt:1:two\n" {
		t.Errorf("%q", out)
	}
	if out := s.works("runner", "find", id, "--name", "*.txt", "--json"); !strings.Contains(out, `"path": "b.txt"`) || !strings.Contains(out, `"limit": null`) {
		t.Errorf("%q", out)
	}
	if out, errs, code := s.command("runner", "find", id, "--containing", "none"); code != codeNoMatch || out+errs != "" {
		t.Errorf("%q, %q, %d", out, errs, code)
	}
	if _, errs, _ := s.command("runner", "find", id, "--name", "*", "--max", "1"); !strings.Contains(errs, "limit of matches") {
		t.Errorf("%q", errs)
	}
	s.fails("--containing", "runner", "find", id)
	s.fails("is gone", "runner", "find", string(runtime.NewRunnerID()), "--name", "*")
	s.fails("RUNNER_GONE", "runner", "watch", string(runtime.NewRunnerID()))

	plain, scripts := s.start("runner", "watch", id, "-r"), s.start("runner", "watch", id, "--json")
	plain.out.has(t, "BEGAN\n")
	scripts.out.has(t, `{"type":"BEGAN","path":null}`)
	put("c\x1b.py", "")
	plain.out.has(t, "CREATED c·.py\n")
	scripts.out.has(t, `{"type":"CREATED","path":"c\u001b.py"}`)
	if code := plain.interrupts(t); code != command.CodeInterrupted {
		t.Errorf("exit %d, want %d", code, command.CodeInterrupted)
	}
}

func TestPlacesOfCopies(t *testing.T) {
	for text, want := range map[string][2]string{
		"a": {"a", ""}, "r:a": {"a", "r"}, "r:": {"", "r"}, "./a:b": {"./a:b", ""}, "/x/a:b": {"/x/a:b", ""}, "r:/x:y": {"/x:y", "r"}, ":a": {":a", ""}, "-": {"-", ""},
	} {
		if path, runner := splitLocation(text); path != want[0] || runner != want[1] {
			t.Errorf("%q: %q in %q", text, path, runner)
		}
	}
}
