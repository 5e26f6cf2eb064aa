package cli

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/runtime"
)

func TestHelpIsAlsoACommand(t *testing.T) {
	run := func(arguments ...string) (string, string, int) {
		var out, errs bytes.Buffer
		code := execute(nil, &out, &errs, arguments...)
		return out.String(), errs.String(), code
	}
	for asked, flag := range map[string]string{"help": "--help", "help exec list": "exec list --help", "exec help": "exec --help", "help run": "run --help", "": "--help"} {
		got, errs, code := run(strings.Fields(asked)...)
		if want, _, _ := run(strings.Fields(flag)...); got != want || got == "" || errs != "" || code != 0 {
			t.Errorf("%s: %d %q %q", asked, code, got, errs)
		}
	}
	for asked, says := range map[string]string{
		"help exce": `did you mean "exec"?`, "exce": `did you mean "exec"?`, "exec lsit": `did you mean "list"?`, "exec lsit help": `did you mean "list"?`, "exec list --stat X": `did you mean "--state"?`, "runner cp help": "<to>",
		"--server http://127.0.0.1:8081 run x.py": "unknown flag --server; flags come after the command", "exec --json list": "flags come after the command",
		"--helpp": "did you mean \"--help\"?\nrockpool: see", "runner exec 019b ls": "unexpected argument ls; put the command to run after --", "runner exec 019b ls -l": "put the command to run after --",
	} {
		if out, errs, code := run(strings.Fields(asked)...); code != command.CodeUsage || out != "" || !strings.Contains(errs, says) {
			t.Errorf("%s: %d %q %q", asked, code, out, errs)
		}
	}
	if out, _, _ := run("__complete", "--", "help", "exec", "li"); !strings.HasPrefix(out, "list\t") {
		t.Errorf("it is completed with %q", out)
	}
}

func TestUnknownEnvironmentsSuggestSimilarOnes(t *testing.T) {
	s := newServer(t)
	s.fails("`rockpool env list` lists the environments that you can use", "env", "show", "pyton")
	for _, id := range []string{"python", "pypy", "node"} {
		s.works("env", "put", id, "--pool-size", "0")
	}
	const near = "did you mean python? `rockpool env list`"
	for _, words := range [][]string{{"env", "show", "pyton"}, {"runner", "claim", "pyton"}, {"runner", "claim", "pyton", "--ticket"}, {"runner", "list", "--env", "pyton"}, {"run", "--env", "pyton"}} {
		if words[0] == "run" {
			out, errs, code := s.command("run", "--env", "pyton", "--server", s.url, "--", "true")
			if out != "" || code != command.CodeOurs || !strings.Contains(errs, near) || strings.Contains(errs, "putEnvironment") {
				t.Errorf("%d %q %q", code, out, errs)
			}
			continue
		}
		s.fails(near, words...)
	}
	s.fails("did you mean pypy or python?", "env", "show", "py")

	admin := s.works("token", "create", "admin", "--role", "ADMIN")
	s.as(admin)
	s.works("tenant", "put", "physics")
	s.works("env", "put", "pytorch", "--tenant", "physics", "--pool-size", "0")
	other := s.works("token", "create", "c", "--role", "CLIENT", "--tenant", "physics")
	s.as(other)
	if _, errs, _ := s.command("runner", "claim", "pytorc"); !strings.Contains(errs, "did you mean pytorch?") || strings.Contains(errs, "python") {
		t.Errorf("it names what its caller can't see: %s", errs)
	}
}

func TestRefusedCommandsNameTheFlag(t *testing.T) {
	t.Chdir(t.TempDir())
	s := newServer(t)
	admin := s.works("token", "create", "admin", "--role", "ADMIN")
	s.fails("hint: give a file with a token with --token-file", "env", "list")
	if _, errs, _ := s.command("env", "list"); strings.Contains(errs, "connection_init") {
		t.Errorf("it says how WebSockets are opened: %s", errs)
	}
	s.as(admin)
	s.works("tenant", "put", "physics")
	s.as(s.works("token", "create", "c", "--role", "CLIENT", "--tenant", "physics"))
	s.fails("needs the role OPERATOR; this token has CLIENT", "env", "put", "a")
	s.fails("hint: `rockpool whoami`", "env", "put", "a")
	s.fails("--file: open missing.yaml", "env", "put", "-f", "missing.yaml")
	s.fails("--file: stat missing.txt", "run", "--env", "a", "--file", "missing.txt", "--", "true")
	s.fails("put it after --", "run", "--env", "a", "missing.py")
	s.fails("the file echo doesn't exist on this machine. If it is a command in the environment, put it after --: rockpool run --env shell -- echo hi", "run", "--env", "shell", "echo", "hi")
	s.token = "missing.token"
	s.fails("--token-file (or ROCKPOOL_TOKEN_FILE): open missing.token", "env", "list")
}

// TestEmptyListsSayWhatToDo: for an empty list, stdout is empty for people and [] for scripts;
// stderr has a hint.
func TestEmptyListsSayWhatToDo(t *testing.T) {
	s := newServer(t)
	for command, says := range map[string]string{
		"env list": "rockpool env put", "runner list": "rockpool runner claim", "runner list --state GONE": "rockpool runner claim", "exec list": "rockpool run", "token list": "rockpool token create", "audit --actor nobody": "remove a filter",
	} {
		out, errs, code := s.command(strings.Fields(command)...)
		if code != 0 || out != "" || strings.Count(errs, "\n") != 1 || !regexp.MustCompile("^rockpool: no .*: .*").MatchString(errs) || !strings.Contains(errs, says) {
			t.Errorf("%s: %d %q %q", command, code, out, errs)
		}
		if command == "exec list" {
			for _, flag := range []string{"--failed", "--state RUNNING", "--outcome LOST", "--label a=b"} {
				if _, errs, _ := s.command(append([]string{"exec", "list"}, strings.Fields(flag)...)...); errs != "rockpool: no executions match\n" {
					t.Errorf("%s: %q", flag, errs)
				}
			}
		}
		if strings.HasPrefix(command, "audit") {
			continue
		}
		for format, want := range map[string]string{"json": "[]\n", "yaml": "[]\n"} {
			if out, errs, code := s.command(append(strings.Fields(command), "-o", format)...); code != 0 || out != want || errs != "" {
				t.Errorf("%s as %s: %d %q %q", command, format, code, out, errs)
			}
		}
	}
	if out, errs, code := s.command("audit", "--actor", "nobody", "--json"); code != 0 || out != "" || !strings.Contains(errs, "no entries match") {
		t.Errorf("audit --json: %d %q %q", code, out, errs)
	}
	s.works("env", "put", "a", "--pool-size", "0")
	if _, errs, code := s.command("runner", "list", "--env", "a"); code != 0 || !strings.Contains(errs, "rockpool runner claim") {
		t.Errorf("an environment without runners: %d %q", code, errs)
	}
	if out := s.works("env", "list"); !strings.HasPrefix(out, "ENVIRONMENT") {
		t.Error(out)
	}
	if out := s.works("tenant", "list"); !strings.HasPrefix(out, "TENANT") || !strings.Contains(out, string(runtime.DefaultTenant)) {
		t.Error(out)
	}
}
