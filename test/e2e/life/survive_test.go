package life

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/test/e2e/bed"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

// TestE2EProgramsOutliveTheServer: programs continue, and a subscriber gets every byte once,
// however often the server is killed.
func TestE2EProgramsOutliveTheServer(t *testing.T) {
	t.Parallel()
	const lines, kills = 3000, 8
	p := bed.ServeBinary(t, bed.DataDir(t))
	script, want := bed.CountingTo(lines, 10)
	var readers []*bed.Reader
	for range 2 {
		runner := p.ClaimUnreleased(t, "shell")
		for range 2 {
			readers = append(readers, &bed.Reader{ID: p.Start(t, object{"runnerId": runner, "shell": script})})
		}
	}
	for range kills {
		var watching sync.WaitGroup
		for _, r := range readers {
			watching.Go(func() { r.Read(t.Context(), p.Bed) })
		}
		bed.AtSomeMoment(700 * time.Millisecond)
		p.End(t, syscall.SIGKILL, false)
		watching.Wait()
		p = bed.ServeBinary(t, p.Data)
	}
	for _, r := range readers {
		r.Read(t.Context(), p.Bed)
		if r.Got.String() != want || r.Lost != 0 {
			t.Errorf("%d bytes, %d lost, want %d: …%q", r.Got.Len(), r.Lost, len(want), r.Got.String()[max(0, r.Got.Len()-40):])
		}
		if got := p.Await(t, r.ID); got.Outcome != "EXITED" || got.ExitCode == nil || *got.ExitCode != 7 || got.Usage.WallMs < 5000 {
			t.Errorf("%+v", got)
		}
	}
	p.Finish(t)
}

// TestE2EEndsWithoutAServerAreReported: outcome, usage and output are reported
// afterwards, and so is the reason.
func TestE2EEndsWithoutAServerAreReported(t *testing.T) {
	t.Parallel()
	p := bed.ServeBinary(t, bed.DataDir(t))
	p.Call(t, `mutation { putEnvironment(input: {id: "small", poolSize: 1, resources: {memoryMiB: 64}}) { created } }`, nil, nil)
	runner, small := p.ClaimUnreleased(t, "shell"), p.ClaimUnreleased(t, "small")
	// Earlier commands also used up the memory: that isn't counted again.
	const hungry = "head -c 500m /dev/zero | tail -c 400m >/dev/null; exit 137"
	if got := p.Shell(t, small, hungry); got.Outcome != "MEMORY_LIMIT" {
		t.Fatalf("%+v", got)
	}
	exits := p.Start(t, object{"runnerId": runner, "shell": "sleep 1000; echo out; echo err >&2; exit 3"})
	eats := p.Start(t, object{"runnerId": small, "shell": "sleep 1000; " + hungry})
	wait.For(t, "they run", func() bool { return len(bed.Running(p.Cgroups, "sleep")) == 2 })
	limited := p.Start(t, object{"runnerId": runner, "shell": "tail -f /dev/null; true", "timeLimit": 3})
	wait.For(t, "the third one runs, or has run", func() bool {
		var out struct{ Execution struct{ State string } }
		p.Call(t, `query($id: ID!) { execution(id: $id) { state } }`, object{"id": limited}, &out)
		return out.Execution.State != "PENDING"
	})
	p.End(t, syscall.SIGKILL, false)
	p.Wake(t, 2)
	wait.For(t, "they end, and only their agents are there", func() bool { return len(bed.Running(p.Cgroups, "sh"))+len(bed.Running(p.Cgroups, "tail")) == 0 })
	p = bed.ServeBinary(t, p.Data)
	if got := p.Await(t, exits); got.Outcome != "EXITED" || *got.ExitCode != 3 || got.Stream("STDOUT") != "out\n" || got.Stream("STDERR") != "err\n" {
		t.Errorf("%+v", got)
	}
	if got := p.Await(t, limited); got.Outcome != "TIME_LIMIT" || got.Usage.WallMs < 3000 {
		t.Errorf("%+v", got)
	}
	if got := p.Await(t, eats); got.Outcome != "MEMORY_LIMIT" {
		t.Errorf("%+v", got)
	}
	fails := p.Start(t, object{"runnerId": small, "shell": "sleep 1000; exit 137"})
	wait.For(t, "it runs", func() bool { return len(bed.Running(p.Cgroups, "sleep")) == 1 })
	p.End(t, syscall.SIGKILL, false)
	p.Wake(t, 1)
	wait.For(t, "it ends", func() bool { return len(bed.Running(p.Cgroups, "sh")) == 0 })
	p = bed.ServeBinary(t, p.Data)
	if got := p.Await(t, fails); got.Outcome != "EXITED" {
		t.Errorf("%+v", got)
	}
	p.Finish(t)
}

// TestE2EStdinAndKeysOutliveTheServer sends input and idempotency keys before and after a kill. A
// whole `run` continues too.
func TestE2EStdinAndKeysOutliveTheServer(t *testing.T) {
	t.Parallel()
	p := bed.ServeBinary(t, bed.DataDir(t))
	runner := p.ClaimUnreleased(t, "shell")
	start := object{"runnerId": runner, "shell": "cat; echo end", "stdin": true, "idempotencyKey": "k"}
	cat := p.Start(t, start)
	write := func(input object) int {
		t.Helper()
		var out struct{ WriteStdin struct{ Offset int } }
		input["executionId"] = cat
		p.Call(t, `mutation($in: WriteStdinInput!) { writeStdin(input: $in) { offset } }`, object{"in": input}, &out)
		return out.WriteStdin.Offset
	}
	write(object{"text": "one "})
	run := object{"environmentId": "shell", "shell": "sleep 1; cat", "stdin": strings.Repeat("stdin ", 100_000), "idempotencyKey": "r", "waitFor": 120}
	whole := func() string {
		var out struct {
			Run struct{ Execution struct{ ID string } }
		}
		p.Call(t, `mutation($in: RunInput!) { run(input: $in) { execution { id } } }`, object{"in": run}, &out)
		return out.Run.Execution.ID
	}
	id := whole()
	p = p.Killed(t)
	if n := write(object{"text": "one two ", "offset": 0}); n != 8 {
		t.Errorf("offset %d, want 8", n)
	}
	p = p.Killed(t)
	if n := write(object{"text": "three\n", "close": true}); n != 14 {
		t.Errorf("offset %d, want 14", n)
	}
	if again := p.Start(t, start); again != cat {
		t.Errorf("the key gave %s, not %s", again, cat)
	}
	if got := p.Await(t, cat); got.Outcome != "EXITED" || got.Stream("STDOUT") != "one two three\nend\n" {
		t.Errorf("%s %q", got.Outcome, got.Stream("STDOUT"))
	}
	if again := whole(); again != id {
		t.Errorf("the key gave %s, not %s", again, id)
	}
	if got := p.Await(t, id); got.Outcome != "EXITED" || got.Stream("STDOUT") != run["stdin"] {
		t.Errorf("%s, %d bytes", got.Outcome, len(got.Stream("STDOUT")))
	}
	wait.For(t, "the run's runner goes", func() bool {
		var out struct {
			Execution struct{ Runner *struct{ ID string } }
		}
		p.Call(t, `query($id: ID!) { execution(id: $id) { runner { id } } }`, object{"id": id}, &out)
		return out.Execution.Runner == nil
	})
	p.Finish(t)
}

// TestE2EReleaseEndsExecutionsDespiteAKill: executions end with their released runner,
// also if the server is killed before it has stored that.
func TestE2EReleaseEndsExecutionsDespiteAKill(t *testing.T) {
	t.Parallel()
	p := bed.ServeBinary(t, bed.DataDir(t))
	for range 5 {
		runner := p.ClaimUnreleased(t, "shell")
		x := p.Start(t, object{"runnerId": runner, "shell": "echo hi; sleep 60"})
		wait.For(t, "it prints", func() bool {
			var out struct {
				Execution struct {
					Output struct{ Chunks []struct{ Text string } }
				}
			}
			p.Call(t, `query($id: ID!) { execution(id: $id) { output { chunks { text } } } }`, object{"id": x}, &out)
			return len(out.Execution.Output.Chunks) > 0
		})
		p.Call(t, `mutation($id: ID!) { releaseRunner(id: $id) { released } }`, object{"id": runner}, nil)
		p.End(t, syscall.SIGKILL, false)
		p = bed.ServeBinary(t, p.Data)
		r := &bed.Reader{ID: x}
		r.Read(t.Context(), p.Bed)
		if r.End == nil || r.End.Outcome != "RUNNER_GONE" || r.Got.String() != "hi\n" {
			t.Errorf("it ended as %+v, after %q", r.End, r.Got.String())
		}
	}
	p.Finish(t)
}

// TestE2ECutUploadLeavesTheOldFileOrTheNew kills the server while it sends a file to an agent.
func TestE2ECutUploadLeavesTheOldFileOrTheNew(t *testing.T) {
	t.Parallel()
	const size = 12 << 20
	p := bed.ServeBinary(t, bed.DataDir(t))
	runner := p.ClaimUnreleased(t, "shell")
	update := func(content string) error {
		return p.Do(t.Context(), `mutation($in: UpdateFilesInput!) { updateFiles(input: $in) { written } }`,
			object{"in": object{"runnerId": runner, "write": []object{{"path": "file", "text": content}}}}, nil)
	}
	content := func(i int) string { return strings.Repeat(string(rune('a'+i)), size) }
	if err := update(content(0)); err != nil {
		t.Fatal(err)
	}
	agent := bed.AgentOf(t, p.Cgroups, runner)
	tell := func(signal syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(agent, signal); err != nil {
			t.Fatal(err)
		}
	}
	old, cut, whole := 0, 0, 0
	for i := 1; i <= 8; i++ {
		var uploading sync.WaitGroup
		var answer error
		if i%4 == 0 { // the agent can't read all of it
			tell(syscall.SIGSTOP)
		}
		uploading.Go(func() { answer = update(content(i)) })
		if i%4 == 1 {
			uploading.Wait()
		} else {
			bed.AtSomeMoment(400 * time.Millisecond)
		}
		p.End(t, syscall.SIGKILL, false)
		tell(syscall.SIGCONT)
		uploading.Wait()
		p = bed.ServeBinary(t, p.Data)
		wait.For(t, "the agent has given up", func() bool {
			return p.Shell(t, runner, `ls -A | grep -c '^\.rockpool-'`).Stream("STDOUT") == "0\n"
		})
		got := p.Shell(t, runner, `stat -c %s file; head -c 1 file; tail -c 1 file`).Stream("STDOUT")
		letter := func(i int) string { return strings.Repeat(string(rune('a'+i)), 2) }
		switch got {
		case fmt.Sprintf("%d\n%s", size, letter(i)):
			old, whole = i, whole+1
		case fmt.Sprintf("%d\n%s", size, letter(old)):
			cut++
			if answer == nil {
				t.Error("the file of an answered upload is missing")
			}
		default:
			t.Errorf("after upload %d the file is %q", i, got)
		}
	}
	if cut == 0 || whole == 0 {
		t.Error("not all kinds were seen, so this test shows less than it says")
	}
	t.Logf("%d were cut, %d were whole", cut, whole)
	p.Finish(t)
}

// TestE2EDiscardedOutputIsReported prints more in one burst than the server may keep, when no other
// output can be deleted.
func TestE2EDiscardedOutputIsReported(t *testing.T) {
	t.Parallel()
	const size = 20 << 20
	data := bed.DataDir(t)
	p := bed.Serve(t, data, bed.Rockpool(t), "serve", "--data", data, "--keep-bytes", "16777216")
	p.Call(t, `mutation { putEnvironment(input: {id: "loud", poolSize: 1, outputLimit: 33554432}) { created } }`, nil, nil)
	r := &bed.Reader{ID: p.Start(t, object{"runnerId": p.ClaimUnreleased(t, "loud"), "shell": "head -c 20m /dev/zero"})}
	r.Read(t.Context(), p.Bed)
	if r.End == nil || r.End.Outcome != "EXITED" || r.Lost == 0 || int64(r.Got.Len())+r.Lost != size || r.Got.Len() > 16<<20 {
		t.Errorf("%+v, %d bytes and %d lost of %d", r.End, r.Got.Len(), r.Lost, size)
	}
	lost, after := int64(0), ""
	for end := false; !end; {
		var out struct {
			Execution struct {
				Output struct {
					LostBytes int64
					Cursor    string
					End       bool
				}
			}
		}
		variables := object{"id": r.ID}
		if after != "" {
			variables["after"] = after
		}
		p.Call(t, `query($id: ID!, $after: Cursor) { execution(id: $id) { output(after: $after) { lostBytes cursor end } } }`, variables, &out)
		lost, after, end = lost+out.Execution.Output.LostBytes, out.Execution.Output.Cursor, out.Execution.Output.End
	}
	if lost != r.Lost {
		t.Errorf("pages tell of %d lost, the watcher of %d", lost, r.Lost)
	}
	p.Finish(t)
}

// TestE2ERetention prints more output than may be kept.
func TestE2ERetention(t *testing.T) {
	t.Parallel()
	data := bed.DataDir(t)
	p := bed.Serve(t, data, bed.Rockpool(t), "serve", "--data", data, "--keep-bytes", "16777216")
	runner := p.ClaimUnreleased(t, "shell")
	var ids []string
	for range 4 {
		r := &bed.Reader{ID: p.Start(t, object{"runnerId": runner, "shell": "head -c 6m /dev/zero | tr '\\0' x"})}
		if r.Read(t.Context(), p.Bed); r.End == nil || r.End.Outcome != "EXITED" || r.Got.Len() != 6<<20 || r.Lost != 0 {
			t.Errorf("%+v, %d bytes, %d lost", r.End, r.Got.Len(), r.Lost)
		}
		ids = append(ids, r.ID)
	}
	p.Refused(t, `query($id: ID!) { execution(id: $id) { id } }`, object{"id": ids[0]}, runtime.CodeExecutionNotFound, "")
	p.Refused(t, `query($id: ID!) { execution(id: $id) { id } }`, object{"id": ids[1]}, runtime.CodeExecutionNotFound, "")
	kept := &bed.Reader{ID: ids[3]}
	if kept.Read(t.Context(), p.Bed); kept.Got.Len() != 6<<20 || kept.Lost != 0 {
		t.Errorf("what is kept has %d bytes", kept.Got.Len())
	}
	p.Finish(t)
}
