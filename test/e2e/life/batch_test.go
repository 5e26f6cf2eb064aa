package life

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/e2e/bed"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

// batchReader is a subscriber of a batch that reconnects after each kill of the server.
type batchReader struct {
	id     string
	cursor *string
	output map[int]string // by case; -1 means the build
	ended  []int          // cases, in the order in which they ended
	batch  client.Batch   // once it has ended
}

// read reads until the batch ends or the connection breaks.
func (r *batchReader) read(ctx context.Context, b bed.Bed) {
	_ = b.Client.FollowBatch(ctx, r.id, r.cursor, func(event client.BatchEvent) error {
		r.cursor = &event.Cursor
		number := runtime.BuildCase
		if event.CaseIndex != nil {
			number = *event.CaseIndex
		}
		r.output[number] += string(event.Event.Base64)
		switch {
		case event.Type == "BatchFinished":
			r.batch = event.Batch
		case event.Event.Type == "ExecutionFinished":
			r.ended = append(r.ended, number)
		}
		return nil
	})
}

// TestE2EBatchesOutliveTheServer: each case runs once, gets its input, and is compared with its
// expected output. A subscriber gets every byte once, however often the server is killed.
func TestE2EBatchesOutliveTheServer(t *testing.T) {
	t.Parallel()
	const cases, kills = 60, 5
	p := bed.ServeBinary(t, bed.DataDir(t))
	runner := p.ClaimUnreleased(t, "shell")
	input := object{"runnerId": runner, "idempotencyKey": "k", "build": object{"shell": "echo building; echo 'echo \"$1\" >>ran; sleep 0.05; cat' >program"}, "command": []string{"sh", "program"}}
	var all []object
	wrong := 0
	for i := range cases {
		stdin := strings.Repeat(fmt.Sprint("case ", i, "\n"), 20_000+i) // in several parts
		expected := stdin
		if i%3 == 1 {
			expected = strings.TrimSuffix(stdin, "\n") + "0\n"
			wrong++
		}
		all = append(all, object{"args": []string{fmt.Sprint(i)}, "stdin": stdin, "expectedOutput": expected})
	}
	input["cases"] = all
	start := func() string {
		var out struct {
			StartExecution struct{ Batch struct{ ID string } }
		}
		p.Call(t, `mutation($in: StartExecutionInput!) { startExecution(input: $in) { batch { id } } }`, object{"in": input}, &out)
		return out.StartExecution.Batch.ID
	}
	r := &batchReader{id: start(), output: map[int]string{}}
	for range kills {
		var watching sync.WaitGroup
		watching.Go(func() { r.read(t.Context(), p.Bed) })
		bed.AtSomeMoment(500 * time.Millisecond)
		p.End(t, syscall.SIGKILL, false)
		watching.Wait()
		p = bed.ServeBinary(t, p.Data)
	}
	if again := start(); again != r.id {
		t.Errorf("the key gave %s, not %s", again, r.id)
	}
	wait.For(t, "the subscriber has the end", func() bool {
		r.read(t.Context(), p.Bed)
		return r.batch.State == runtime.BatchFinished
	})
	if r.batch.Outcome != runtime.BatchCompleted || r.batch.EndedCount != cases || r.batch.FailedCount != wrong || r.output[runtime.BuildCase] != "building\n" {
		t.Errorf("%+v, %q", r.batch, r.output[runtime.BuildCase])
	}
	for i, want := range all {
		if got := r.output[i]; got != want["stdin"] {
			t.Errorf("case %d: %d bytes", i, len(got))
		}
	}
	ended, err := client.GetBatch(t.Context(), p.Client, r.id, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range ended.Batch.Cases.Nodes {
		if (c.State == runtime.CaseFailed) != (i%3 == 1) || c.State != runtime.CaseFailed && c.State != runtime.CasePassed {
			t.Errorf("case %d %s", i, c.State)
		}
	}
	for i, number := range r.ended {
		if number != i-1 {
			t.Errorf("the %dth end is of case %d", i, number)
		}
	}
	var ran strings.Builder
	for i := range cases {
		fmt.Fprintln(&ran, i)
	}
	if got := p.Shell(t, runner, "cat ran"); got.Stream("STDOUT") != ran.String() {
		t.Errorf("these ran: %s", got)
	}
	p.Finish(t)
}

// TestE2EMuchOutputOfCasesTakesLittleMemory compares and reports 600 MB of output. The kernel counts the
// peak of the server and of each client.
func TestE2EMuchOutputOfCasesTakesLittleMemory(t *testing.T) {
	t.Parallel()
	const each, most = 15_000_000, 100 << 20
	p := bed.ServeBinary(t, bed.DataDir(t))
	for format, cases := range map[string]int{"table": 40, "json": 4} {
		dir := t.TempDir()
		for i := range cases {
			for name, text := range map[string]string{"args": fmt.Sprint(i), "out": strings.Repeat("y\n", 5000)} {
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i, ".", name)), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		// Half of the cases print only empty lines after the expected output. NUL is the longest in JSON.
		script := fmt.Sprintf(`yes | head -c 10000; if [ $(($1 %% 2)) = 0 ]; then yes '' | head -c %[1]d; else head -c %[1]d /dev/zero; fi`, each)
		cmd := exec.CommandContext(t.Context(), bed.Rockpool(t), "run", "--server", p.Address, "--env", "shell", "--cases", dir, "--output", format, "--", "sh", "-c", script, "sh")
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		var peak int64
		passed := 0
		for lines := bufio.NewReader(out); err == nil; {
			var line string
			line, err = lines.ReadString('\n')
			peak = max(peak, peakOf(cmd.Process.Pid)) // a report is longer than a pipe, so the process still writes it
			if strings.HasPrefix(line, "pass ") || strings.Contains(line, `"state": "PASSED"`) {
				passed++
			}
		}
		if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 1 || passed != cases/2 {
			t.Errorf("%s: %d of %d passed, code %d", format, passed, cases, cmd.ProcessState.ExitCode())
		}
		if t.Logf("%s: the client's peak was %d bytes", format, peak); peak == 0 || peak > most {
			t.Errorf("%s: the client's peak was %d bytes, the most is %d", format, peak, most)
		}
	}
	if peak := peakOf(p.Cmd.Process.Pid); peak == 0 || peak > most {
		t.Errorf("the server's peak was %d bytes, the most is %d", peak, most)
	}
	p.Finish(t)
}

// TestE2EInputsOfBatchesLeaveTheDisk runs batches whose inputs are several times --keep-bytes. The data
// directory stays within it, with what the database's log and its spare pages may have in addition.
func TestE2EInputsOfBatchesLeaveTheDisk(t *testing.T) {
	t.Parallel()
	const keep, margin = 64 << 20, 32 << 20
	data := bed.DataDir(t)
	p := bed.Serve(t, data, bed.Rockpool(t), "serve", "--data", data, "--keep-bytes", fmt.Sprint(keep))
	stored := func() (all, database int64) {
		for _, pattern := range []string{"*.db*", "output/*/*"} {
			files, err := filepath.Glob(filepath.Join(data, pattern))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				if info, err := os.Stat(file); err == nil {
					all += info.Size()
					if strings.HasSuffix(file, ".db") {
						database += info.Size()
					}
				}
			}
		}
		return all, database
	}
	most := int64(0)
	for range 20 {
		out, err := client.RunBatch(t.Context(), p.Client, client.RunInput{EnvironmentId: "shell", WaitFor: new(120), Command: []string{"wc", "-c"},
			Cases: []client.CaseInput{{StdinBase64: make([]byte, 10<<20), ExpectedOutputBase64: fmt.Appendln(nil, 10<<20)}}})
		if err != nil {
			t.Fatal(err)
		}
		r := &batchReader{id: out.Run.Batch.Id, output: map[int]string{}}
		r.read(t.Context(), p.Bed)
		if r.batch.Outcome != runtime.BatchCompleted || r.batch.FailedCount != 0 {
			t.Errorf("%+v", r.batch)
		}
		all, database := stored()
		if database == 0 {
			t.Fatal("no database is found")
		}
		most = max(most, all)
	}
	if t.Logf("at most %d bytes were stored", most); most > keep+margin {
		t.Errorf("%d bytes were stored, more than %d and the margin of %d", most, keep, margin)
	}
	wait.For(t, "the database shrinks", func() bool {
		_, database := stored()
		return database < 8<<20
	})
	p.Finish(t)
}

// peakOf returns the most memory that a process had, without what it maps of files; 0 means it has ended.
func peakOf(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	kib := func(name string) (n int64) {
		_, after, _ := strings.Cut(string(status), name+":")
		_, _ = fmt.Sscan(after, &n)
		return n
	}
	return (kib("VmHWM") - kib("RssFile")) << 10
}

// TestE2EBatchEndsWithItsRunner: however its runner ends, the batch reports it.
func TestE2EBatchEndsWithItsRunner(t *testing.T) {
	t.Parallel()
	p := bed.ServeBinary(t, bed.DataDir(t))
	for _, killed := range []bool{false, true} {
		runner := p.ClaimUnreleased(t, "shell")
		out, err := client.StartBatch(t.Context(), p.Client, client.StartExecutionInput{RunnerId: runner, Shell: new(`"$@"`), Cases: []client.CaseInput{{Args: []string{"true"}}, {Args: []string{"sleep", "1000"}}, {}}})
		if err != nil {
			t.Fatal(err)
		}
		wait.For(t, "the second case runs", func() bool { return len(bed.Running(p.Cgroups, "sleep")) == 1 })
		if killed {
			bed.KillAgent(t, p.Cgroups, runner)
		} else {
			p.Release(t, runner)
		}
		r := &batchReader{id: out.StartExecution.Batch.Id, output: map[int]string{}}
		r.read(t.Context(), p.Bed)
		if r.batch.Outcome != runtime.BatchRunnerGone || r.batch.EndedCount != 2 || r.batch.FailedCount != 1 || r.batch.SkippedCount != 1 {
			t.Errorf("killed %v: %+v", killed, r.batch)
		}
	}
	p.Finish(t)
}
