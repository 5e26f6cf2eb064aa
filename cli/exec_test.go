package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/test/wait"
)

// withRunners returns a server on which commands claim runners of the environment e.
func withRunners(t *testing.T) *server {
	s := newServer(t)
	if _, _, err := s.engine.Environments.Put(access.With(t.Context(), access.Server()), request.Environment{ID: "e", PoolSize: new(2)}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ROCKPOOL_SERVER", s.url) // what follows -- is no flag
	return s
}

// inside runs a command line, which may end with a program after --.
func (s *server) inside(in string, arguments ...string) (out, errs string, code int) {
	s.t.Helper()
	var stdout, stderr bytes.Buffer
	code = execute(strings.NewReader(in), &stdout, &stderr, arguments...)
	return stdout.String(), withoutWaiting(stderr.String()), code
}

func (s *server) begin(in request.Start) runtime.ExecutionID {
	s.t.Helper()
	x, err := s.engine.Executions.Start(access.With(s.t.Context(), access.Server()), in)
	if err != nil {
		s.t.Fatal(err)
	}
	return x.ID
}

func TestRunnerExecRunsInAClaimedRunner(t *testing.T) {
	s := withRunners(t)
	id := strings.TrimSpace(s.works("runner", "claim", "e", "--label", "user=ada"))
	if out, errs, code := s.inside("fed", "runner", "exec", id, "--stdin", "--label", "step=one", "--", "cat"); out != "fed" || errs != "" || code != 0 {
		t.Errorf("%d %q %q", code, out, errs)
	}
	if out, errs, code := s.inside("unread", "runner", "exec", id, "--", "cat"); out+errs != "" || code != 0 {
		t.Errorf("%d %q %q", code, out, errs)
	}
	if _, _, code := s.inside("", "runner", "exec", id, "--", "exit", "7"); code != 7 {
		t.Error(code)
	}
	if _, errs, code := s.inside("", "runner", "exec", id); code != command.CodeUsage || !strings.Contains(errs, "add one after --") {
		t.Errorf("%d %q", code, errs)
	}
	if out := s.works("runner", "list", "--label", "user=ada"); !strings.Contains(out, id) {
		t.Error("the runner isn't held any more:", out)
	}
	if out, errs, code := s.inside("", "runner", "list", "--label", "user=bob"); out != "" || code != 0 || !strings.Contains(errs, "no runners: ") {
		t.Errorf("%d %q %q", code, out, errs)
	}
	if out := s.works("exec", "list", "--label", "step=one", "--label", "user"); strings.Count(out, "\n") != 2 || !strings.Contains(out, "user=ada step=one") {
		t.Error(out)
	}
	for use, arguments := range map[string][]string{
		"rockpool runner exec " + id + " -- ls 'a b' (add --stdin": {"runner", "shell", id, "--", "ls", "a b"},
		"rockpool runner exec " + id + " -- COMMAND":               {"runner", "shell", id},
		"rockpool run --env e -- ls":                               {"runner", "shell", "--env", "e", "--", "ls"},
	} {
		if _, errs, code := s.inside("", arguments...); code != command.CodeUsage || !strings.Contains(errs, use) {
			t.Errorf("%d %q, not %q", code, errs, use)
		}
	}
}

func TestRunLabelsItsClaimAndExecution(t *testing.T) {
	s := withRunners(t)
	if out, errs, code := s.inside("", "run", "--env", "e", "--label", "user=ada=1", "--", "echo", "x"); code != 0 {
		t.Fatal(out, errs)
	}
	if out := s.works("exec", "list", "--label", "user=ada=1"); !strings.Contains(out, "echo x") {
		t.Error(out)
	}
	s.fails("must be NAME=VALUE", "run", "--env", "e", "--label", "user", "main.py")
}

func TestExecListFinds(t *testing.T) {
	s := withRunners(t)
	runner := runtime.RunnerID(strings.TrimSpace(s.works("runner", "claim", "e")))
	var ids []string
	for _, command := range [][]string{{"exit", "3"}, {"echo", "It's"}, {"exit", "0"}, {"exit", "4"}} {
		id := s.begin(request.Start{RunnerID: runner, Command: command, Labels: []runtime.Label{{Name: "of", Value: command[0]}}})
		ids = append(ids, string(id))
		wait.For(t, "it has ended", func() bool {
			x, err := s.engine.Executions.Get(access.With(t.Context(), access.Server()), id, 0)
			return err == nil && x.State == runtime.ExecutionFinished
		})
	}
	for name, test := range map[string]struct {
		flags []string
		want  []string
	}{
		"all, the newest first": {nil, []string{ids[3], ids[2], ids[1], ids[0]}},
		"failed":                {[]string{"--failed"}, []string{ids[3], ids[0]}},
		"the newest":            {[]string{"--limit", "3"}, []string{ids[3], ids[2], ids[1]}},
		"a label":               {[]string{"--label", "of=exit", "--limit", "1", "--failed"}, []string{ids[3]}},
		"a command":             {[]string{"--command", "'it'\\''S"}, []string{ids[1]}},
		"an outcome":            {[]string{"--outcome", "TIME_LIMIT"}, []string{}},
		"since then":            {[]string{"--since", "1h", "--outcome", "EXITED", "--env", "e"}, []string{ids[3], ids[2], ids[1], ids[0]}},
		"since now":             {[]string{"--since", "2999-01-01T00:00:00Z"}, []string{}},
	} {
		var found []struct{ ID string }
		text := s.works(append([]string{"exec", "list", "--json"}, test.flags...)...)
		if err := json.Unmarshal([]byte(text), &found); err != nil {
			t.Fatal(err)
		}
		got := []string{}
		for _, x := range found {
			got = append(got, x.ID)
		}
		if strings.Join(got, " ") != strings.Join(test.want, " ") {
			t.Errorf("%s: %v, not %v", name, got, test.want)
		}
	}
	x, err := s.engine.Executions.Get(access.With(t.Context(), access.Server()), runtime.ExecutionID(ids[1]), 0)
	if err != nil {
		t.Fatal(err)
	}
	queued := x.Timestamps.QueuedAt
	if out := s.works("exec", "list"); !strings.Contains(out, date(&queued)) || !strings.Contains(out, `echo 'It'\''s'`) {
		t.Error(out)
	}
	if out := s.works("exec", "show", ids[3]); !strings.Contains(out, "exit 4") || !strings.Contains(out, "EXITED 4") || !strings.Contains(out, "of=exit") || !strings.Contains(out, "finished") {
		t.Error(out)
	}
	s.fails("EXECUTION_NOT_FOUND", "exec", "show", "nonesuch")
	s.fails("--since", "exec", "list", "--since", "yesterday")
	s.fails("--limit", "exec", "list", "--limit=-1")
	s.fails("NAME=VALUE or NAME", "exec", "list", "--label", "=x")
	s.fails("INVALID_INPUT", "exec", "list", "--label", strings.Repeat("x", 257))
}

func TestExecCancelReportsResults(t *testing.T) {
	s := withRunners(t)
	runner := runtime.RunnerID(strings.TrimSpace(s.works("runner", "claim", "e", "--label", "user=ada")))
	other := runtime.RunnerID(strings.TrimSpace(s.works("runner", "claim", "e", "--label", "user=bob")))
	sleep := func(of runtime.RunnerID) runtime.ExecutionID {
		return s.begin(request.Start{RunnerID: of, Command: []string{"sleep", "3600"}})
	}
	ended := string(s.begin(request.Start{RunnerID: runner, Command: []string{"exit", "3"}}))
	wait.For(t, "it has ended", func() bool {
		x, err := s.engine.Executions.Get(access.With(t.Context(), access.Server()), runtime.ExecutionID(ended), 0)
		return err == nil && x.State == runtime.ExecutionFinished
	})
	first, second, third := sleep(runner), sleep(runner), sleep(other)
	batch, _, err := s.engine.Batches.Start(access.With(t.Context(), access.Server()), request.Start{RunnerID: runner, Command: []string{"sleep", "3600"}}, request.Batch{Cases: make([]request.Case, 3)})
	if err != nil {
		t.Fatal(err)
	}
	preview := s.works("exec", "cancel", "--label", "user=ada", "--dry-run")
	if !strings.Contains(preview, string(first)) || !strings.Contains(preview, string(second)) || strings.Count(preview, "\n") != 4 {
		t.Error(preview)
	}
	if x, err := s.engine.Executions.Get(access.With(t.Context(), access.Server()), first, 0); err != nil || x.State == runtime.ExecutionFinished {
		t.Errorf("%+v %v", x, err)
	}
	out, errs, code := s.command("exec", "cancel", "--label", "user=ada")
	if code != 0 || errs != "rockpool: cancelling 3 executions\n" || !strings.HasSuffix(out, "\ncancelled 3 executions\n") || !strings.Contains(out, string(first)) || !strings.Contains(out, string(second)) ||
		strings.Contains(out, ended) || strings.Contains(out, string(third)) {
		t.Errorf("%d %s %s", code, out, errs)
	}
	wait.For(t, "the batch has ended as a whole", func() bool {
		b, err := s.engine.Batches.Get(access.With(t.Context(), access.Server()), batch.ID)
		return err == nil && b.State == runtime.BatchFinished && b.Skipped() == 2
	})
	if out, errs, code := s.command("exec", "cancel", "--label", "user=ada"); code != 0 || out != "cancelled 0 executions\n" || errs != "" {
		t.Errorf("%d %q %q", code, out, errs)
	}
	out, errs, code = s.command("exec", "cancel", string(third), ended)
	if code != 0 || errs != "" || !strings.HasSuffix(out, "\ncancelled 1 execution\n") || !strings.Contains(out, "no         already ended: exited with code 3 (EXITED)") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if out, _, _ := s.command("exec", "cancel", string(third)); !strings.Contains(out, "already ended: cancelled (CANCELLED)\ncancelled 0 executions\n") {
		t.Error(out)
	}
	out, errs, code = s.command("exec", "cancel", "nonesuch", ended, "--json")
	var all []cancelResult
	if err := json.Unmarshal([]byte(out), &all); err != nil || code != command.CodeOurs || !strings.Contains(errs, "nonesuch: ") ||
		len(all) != 2 || all[1].ID != ended || all[1].Cancelled || all[1].Outcome != runtime.OutcomeExited {
		t.Errorf("%v: %d %s %s", err, code, out, errs)
	}
	if out, errs, code := s.command("exec", "cancel", "--label", "user=ada", "--dry-run"); code != 0 || out != "" || !strings.Contains(errs, "nothing would be cancelled") {
		t.Errorf("%d %q %q", code, out, errs)
	}
	for _, arguments := range [][]string{{"exec", "cancel"}, {"exec", "cancel", "ids", "--dry-run"}, {"exec", "cancel", "x", "--label", "user=ada"}} {
		if _, errs, code := s.command(arguments...); code != command.CodeUsage || !strings.Contains(errs, "ids") {
			t.Errorf("%v: %d %s", arguments, code, errs)
		}
	}
}

// TestExecCancelAsksForConfirmation on a terminal, if flags select more than one execution.
func TestExecCancelAsksForConfirmation(t *testing.T) {
	s := withRunners(t)
	var ids []runtime.ExecutionID
	sleep := func() {
		runner := runtime.RunnerID(strings.TrimSpace(s.works("runner", "claim", "e", "--label", "user=ada", "--wait", "60")))
		ids = append(ids, s.begin(request.Start{RunnerID: runner, Command: []string{"sleep", "3600"}}))
	}
	sleep()
	sleep()
	running := func() (n int) {
		for _, id := range ids {
			if x, err := s.engine.Executions.Get(access.With(t.Context(), access.Server()), id, 0); err != nil {
				t.Fatal(err)
			} else if x.State != runtime.ExecutionFinished {
				n++
			}
		}
		return n
	}
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slave.Close(); _ = master.Close() })
	var shown sharedBuffer
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
	asked := 0
	cancel := func(keys string, more ...string) (code int) {
		t.Helper()
		codes := make(chan int, 1)
		go func() {
			codes <- execute(slave, &sharedBuffer{}, slave, s.arguments(append([]string{"exec", "cancel", "--label", "user=ada"}, more...))...)
		}()
		if keys != "" {
			asked++
			wait.For(t, "it asks", func() bool { return strings.Count(shown.String(), "Cancel 2 executions? [y/N] ") == asked })
			if _, err := master.WriteString(keys); err != nil {
				t.Fatal(err)
			}
		}
		return wait.Receive(t, codes, "it ends")
	}
	for _, no := range []string{"\r", "n\r", "yellow\r", "\x04"} {
		if code := cancel(no); code != command.CodeInterrupted || running() != 2 {
			t.Errorf("%q: %d, and %d run: %s", no, code, running(), shown.String())
		}
	}
	if code := cancel("Y\r"); code != 0 || running() != 0 {
		t.Errorf("%d, and %d run: %s", code, running(), shown.String())
	}
	sleep()
	if code := cancel(""); code != 0 || running() != 0 {
		t.Errorf("one: %d, and %d run: %s", code, running(), shown.String())
	}
	sleep()
	sleep()
	if code := cancel("", "--yes"); code != 0 || running() != 0 {
		t.Errorf("--yes: %d, and %d run: %s", code, running(), shown.String())
	}
	wait.For(t, "it says how many", func() bool { return strings.Contains(shown.String(), "rockpool: cancelling 2 executions") })
	if n := strings.Count(shown.String(), "nothing was cancelled"); n != 4 {
		t.Errorf("%d times: %s", n, shown.String())
	}
}

// The result of a comparison is shown, and a wrong output is in the list.
func TestComparisonsAreShown(t *testing.T) {
	for want, c := range map[string]client.Comparison{
		"trimmed: not compared":       {Mode: runtime.CompareTrimmed},
		"trimmed: the output matches": {Mode: runtime.CompareTrimmed, Matches: new(true)},
		"exact: line 1 is wrong":      {Mode: runtime.CompareExact, Matches: new(false), Message: new("line 1 is wrong")},
	} {
		shown := fmt.Sprint(executionTable(client.Execution{Comparison: &c}).Rows)
		listed := fmt.Sprint(executionsTable([]client.ListedExecution{{Comparison: &client.ListedComparison{Mode: c.Mode, Matches: c.Matches}}}).Rows)
		if wrong := c.Matches != nil && !*c.Matches; !strings.Contains(shown, want) || strings.Contains(listed, "wrong output") != wrong {
			t.Errorf("want %q: %s; %s", want, shown, listed)
		}
	}
}
