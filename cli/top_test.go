package cli

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"

	"github.com/rockpool/rockpool/cli/command"
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
	if _, errs, code := s.command("top", "--sort", "name"); code != command.CodeUsage || errs == "" {
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
	code := make(chan int, 1)
	var errs sharedBuffer
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

func executing(id string, wall, cpu, memory int64) client.RunningExecution {
	processes := 2
	return client.RunningExecution{
		Id: id, EnvironmentId: "python", Tenant: "default", CommandLine: "sh -c x", Labels: []client.Label{{Name: "user", Value: "ada"}},
		UsageNow:   &client.UsageNow{WallMs: wall, UserMs: cpu, Memory: &memory, Processes: &processes, OutputBytes: 1500},
		Timestamps: client.RunningTimestamps{StartedAt: new(time.Unix(1000, 0))},
		Runner:     &client.UsedRunner{Usage: &client.RunnerUsage{MemoryLimit: 256 << 20, ProcessLimit: 64}},
	}
}

// TestCPUUseSinceThePreviousTable: the first table shows the average since the start; later ones
// the use since the previous table.
func TestCPUUseSinceThePreviousTable(t *testing.T) {
	v := &View{Sort: "cpu"}
	at := time.Unix(1010, 0)
	for i, step := range []struct {
		wall, cpu int64
		want      string
	}{
		{10_000, 1000, "10%"},
		{11_000, 2500, "150%"},
		{11_000, 2500, "150%"}, // the server asked nobody meanwhile
		{13_000, 2500, "0%"},
	} {
		_, table := v.Table([]client.RunningExecution{executing("a", step.wall, step.cpu, 1)}, at)
		if got := table.Rows[0][2]; got != step.want {
			t.Errorf("view %d: %s, want %s", i, got, step.want)
		}
	}
}

func TestRows(t *testing.T) {
	silent := client.RunningExecution{Id: "s", EnvironmentId: "shell", Tenant: "default", CommandLine: "cat", Timestamps: client.RunningTimestamps{StartedAt: new(time.Unix(1000, 0))}}
	all := []client.RunningExecution{silent, executing("a", 60_000, 600, 5<<20), executing("b", 61_000, 61_000, 200<<20)}
	sorted, table := (&View{Sort: "memory"}).Table(all, time.Unix(1090, 0))
	want := [][]string{
		{"b", "1m1s", "100%", "200 MiB / 256 MiB", "2 / 64", "1.5 KiB", "python", "default", "user=ada", "sh -c x"},
		{"a", "1m0s", "1%", "5.0 MiB / 256 MiB", "2 / 64", "1.5 KiB", "python", "default", "user=ada", "sh -c x"},
		{"s", "1m30s", "-", "-", "-", "-", "shell", "default", "-", "cat"},
	}
	if diff := cmp.Diff(want, table.Rows); diff != "" {
		t.Error(diff)
	}
	if sorted[0].Id != "b" || len(sorted) != 3 {
		t.Errorf("%+v", sorted)
	}
	if got := Summary(sorted, table); got != "3 running, 205 MiB of memory" {
		t.Error(got)
	}
}

// TestEverySort: every column sorts the largest first; equal rows sort by id.
func TestEverySort(t *testing.T) {
	a, b := executing("a", 1000, 10, 1), executing("b", 2000, 2000, 2)
	b.UsageNow.Processes, b.UsageNow.OutputBytes = new(3), 3000
	same := executing("c", 1000, 10, 1)
	for sort := range sorts {
		sorted, _ := (&View{Sort: sort}).Table([]client.RunningExecution{same, a, b}, time.Unix(1010, 0))
		var ids []string
		for _, x := range sorted {
			ids = append(ids, x.Id)
		}
		if !slices.Equal(ids, []string{"b", "a", "c"}) {
			t.Errorf("by %s: %s", sort, strings.Join(ids, " "))
		}
	}
}
