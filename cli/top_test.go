package cli

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/creack/pty"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/test/wait"
)

// busy starts an execution in an environment and returns its id.
func (s *server) busy(environment string) string {
	s.t.Helper()
	size, patience := 1, 60
	if _, _, err := s.engine.Environments.Put(access.With(s.t.Context(), access.Server()), request.Environment{ID: runtime.EnvironmentID(environment), PoolSize: &size}); err != nil {
		s.t.Fatal(err)
	}
	runner, err := s.engine.Runners.Claim(access.With(s.t.Context(), access.Server()), request.Claim{EnvironmentID: runtime.EnvironmentID(environment), WaitFor: &patience, Labels: []runtime.Label{{Name: "user", Value: "ada"}}})
	if err != nil {
		s.t.Fatal(err)
	}
	x, err := s.engine.Executions.Start(access.With(s.t.Context(), access.Server()), request.Start{RunnerID: runner.ID, Command: []string{"cat"}, Stdin: true})
	if err != nil {
		s.t.Fatal(err)
	}
	return string(x.ID)
}

// TestTopOnce: without a terminal, top prints one table; with --json the API's response.
func TestTopOnce(t *testing.T) {
	s := newServer(t)
	first, second := s.busy("one"), s.busy("two")
	row := regexp.MustCompile(`(?m)^` + second + ` +\S+ +\d+% +1\.0 MiB / \d+ MiB +2 / \d+ +0 B +two +default +user=ada +cat$`)
	wait.For(t, "both run", func() bool {
		out, errs, code := s.command("top")
		if code != 0 {
			t.Fatal(errs)
		}
		return row.MatchString(out) && regexp.MustCompile(first).MatchString(out)
	})
	out, errs, code := s.command("top", "--env", "one", "--json", "--sort", "memory")
	var all []client.RunningExecution
	if err := json.Unmarshal([]byte(out), &all); err != nil || code != 0 || len(all) != 1 || all[0].Id != first || all[0].UsageNow == nil || *all[0].UsageNow.Memory != 1<<20 {
		t.Errorf("%d %v: %s%s", code, err, out, errs)
	}
	if _, errs, code := s.command("top", "--sort", "name"); code != CodeUsage || errs == "" {
		t.Errorf("--sort name: %d %s", code, errs)
	}
}

// TestTopRefreshes: on a terminal, new executions appear, and q exits.
func TestTopRefreshes(t *testing.T) {
	s := newServer(t)
	master, slave, err := pty.Open()
	if err == nil {
		err = pty.Setsize(master, &pty.Winsize{Cols: 200, Rows: 20})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slave.Close(); _ = master.Close() })
	var shown shared
	go func() { // ends with the terminal
		buffer := make([]byte, 1<<12)
		for {
			n, err := master.Read(buffer)
			if err != nil {
				return
			}
			_, _ = shown.Write(buffer[:n])
		}
	}()
	code := make(chan int, 1)
	var errs shared
	go func() { code <- execute(slave, slave, &errs, s.arguments([]string{"top"})...) }()
	wait.For(t, "it shows that nothing runs", func() bool { return regexp.MustCompile("0 running").MatchString(shown.String()) })
	id := s.busy("later")
	wait.For(t, "it shows what began", func() bool { return regexp.MustCompile(id + ".*1.0 MiB").MatchString(shown.String()) })
	if _, err := master.WriteString("q"); err != nil {
		t.Fatal(err)
	}
	if got := wait.Receive(t, code, "q ends it"); got != 0 {
		t.Errorf("exit %d: %s", got, errs.String())
	}
}
