package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/test/wait"
)

func TestLogs(t *testing.T) {
	s := newServer(t)
	s.works("env", "put", "a", "--pool-size", "1")
	wait.For(t, "a runner is idle", func() bool {
		p, _ := s.engine.Environments.PoolStatus(runtime.Environment{ID: "a"})
		return p.Idle == 1
	})
	runner := strings.TrimSpace(s.works("runner", "claim", "a"))
	run := func(command ...string) string {
		t.Helper()
		x, err := s.engine.Executions.Start(access.With(t.Context(), access.Server()), request.Start{RunnerID: runtime.RunnerID(runner), Command: command, TimeLimit: new(0)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.engine.Executions.Get(access.With(t.Context(), access.Server()), x.ID, 1<<40); err != nil {
			t.Fatal(err)
		}
		return string(x.ID)
	}
	id := run("count", "2500", "0") // three pages
	if lines := strings.Split(strings.TrimSpace(s.works("exec", "logs", id)), "\n"); len(lines) != 2500 || lines[0] != "0" || lines[2499] != "2499" {
		t.Errorf("%d lines from %s on", len(lines), lines[0])
	}
	for want, args := range map[string][]string{
		"119\n120\n":      {"--lines", "120-121"},
		"   2500  2499\n": {"--lines", "2500-", "-n"},
		"2498\n2499\n":    {"--last", "2"},
		"   2120  2119\n": {"--search", "2119", "--lines", "1120-2120", "--numbers"},
	} {
		if got := s.works(append([]string{"exec", "logs", id}, args...)...); got != want {
			t.Errorf("%q print %q, want %q", args, got, want)
		}
	}
	for _, args := range [][]string{{"--stream", "stderr"}, {"--lines", "2501-2600"}} {
		if out, errs, code := s.command(append([]string{"exec", "logs", id}, args...)...); out != "" || errs != "rockpool: no lines match, or the program has printed nothing\n" || code != 0 {
			t.Errorf("%q: %q %q %d", args, out, errs, code)
		}
	}
	silent, err := s.engine.Executions.Start(access.With(t.Context(), access.Server()), request.Start{RunnerID: runtime.RunnerID(runner), Command: []string{"sleep", "3600000"}, TimeLimit: new(0)})
	if err != nil {
		t.Fatal(err)
	}
	if _, errs, code := s.command("exec", "logs", string(silent.ID)); !strings.HasSuffix(errs, "printed nothing yet\n") || code != 0 {
		t.Errorf("a program that runs: %q %d", errs, code)
	}
	many := run("count", "1200000", "0") // more than a request counts
	if got := s.works("exec", "logs", many, "--last", "2"); got != "1199998\n1199999\n" {
		t.Errorf("the last of many are %.100q", got)
	}
	failing := run("stderr", "Oh", "no")
	var line client.Line
	if err := json.Unmarshal([]byte(s.works("exec", "logs", failing, "--stream", "stderr", "--search", "OH", "--json")), &line); err != nil || line.Number != 1 || line.Text != "Oh no" || *line.Stream != client.OutputStreamStderr {
		t.Error(line, err)
	}
	if got := s.works("exec", "logs", failing, "--timestamps"); !strings.HasPrefix(got, line.At.Local().Format("2006-01-02T15:04:05.000")) || !strings.HasSuffix(got, "  Oh no\n") {
		t.Error(got)
	}
	for want, args := range map[string][]string{
		"isn't a range of lines":     {"--lines", "140-120"},
		"can't be used with --lines": {"--lines", "1", "--last", "1"},
		"maxLines":                   {"--last", "2000"},
	} {
		if _, got, code := s.command(append([]string{"exec", "logs", id}, args...)...); code == 0 || !strings.Contains(got, want) {
			t.Errorf("%q: %d %s", args, code, got)
		}
	}
}
