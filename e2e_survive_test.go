package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/local/sandbox/sandboxtest"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

// killed ends the server with SIGKILL and starts the next one.
func (p *process) killed(t *testing.T) *process {
	t.Helper()
	p.end(t, syscall.SIGKILL, false)
	return serveBinary(t, p.data)
}

// atSomeMoment returns at a random moment within most. A kill must be able to hit
// every step of what goes on, and most steps show nothing that could be awaited.
func atSomeMoment(most time.Duration) { <-time.After(rand.N(most)) }

// finish ends the last server of a test, with all runners.
func (p *process) finish(t *testing.T) {
	t.Helper()
	p.end(t, syscall.SIGTERM, false)
	p.wantNothingLeft(t)
}

// inHalves is a shell script that prints so many numbered lines, the second half
// after [process.wake], and exits with 7; and what it prints.
func inHalves(lines int) (script, output string) {
	var b strings.Builder
	for i := range lines {
		fmt.Fprintln(&b, i)
	}
	return fmt.Sprintf("seq 0 %d; sleep 1000; seq %d %d; exit 7", lines/2-1, lines/2, lines-1), b.String()
}

// wake has so many programs in runners go on that sleep, as soon as they do.
func (p *process) wake(t *testing.T, programs int) {
	t.Helper()
	var sleeping []int
	wait.For(t, fmt.Sprint("programs sleep: ", programs), func() bool {
		sleeping = running(p.cgroups, "sleep")
		return len(sleeping) == programs
	})
	for _, pid := range sleeping {
		if err := syscall.Kill(pid, syscall.SIGPIPE); err != nil { // of which no shell says anything
			t.Error(err)
		}
	}
}

// countingTo is a shell script that prints so many numbered lines in about so many
// seconds, and exits with 7; and what it prints.
func countingTo(lines int, seconds float64) (script, output string) {
	var b strings.Builder
	for i := range lines {
		fmt.Fprintln(&b, i)
	}
	return fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo $i; i=$((i+1)); [ $((i %% 20)) = 0 ] && sleep %f; done; exit 7", lines, seconds*20/float64(lines)), b.String()
}

// reader is a client that watches one execution across servers.
type reader struct {
	id     string
	cursor *string
	got    strings.Builder
	lost   int64
	end    *ending
}

// read reads until the end, or until the server is gone.
func (r *reader) read(ctx context.Context, b bed) {
	if r.end != nil {
		return
	}
	_ = b.follow(ctx, r.id, r.cursor, func(e executionEvent) {
		r.cursor = &e.Cursor
		r.got.Write(e.Base64)
		r.lost += e.Bytes
		if e.Type == "ExecutionFinished" {
			r.end = &e.Execution
		}
	})
}

// TestE2EProgramsOutliveTheServer: what runs goes on, and who watches gets every
// byte once, however often the server is killed.
func TestE2EProgramsOutliveTheServer(t *testing.T) {
	t.Parallel()
	const lines, kills = 3000, 8
	p := serveBinary(t, dataDir(t))
	script, want := countingTo(lines, 10)
	var readers []*reader
	for range 2 {
		runner := p.claimLoosely(t, "shell")
		for range 2 {
			readers = append(readers, &reader{id: p.start(t, object{"runnerId": runner, "shell": script})})
		}
	}
	for range kills {
		var watching sync.WaitGroup
		for _, r := range readers {
			watching.Go(func() { r.read(t.Context(), p.bed) })
		}
		atSomeMoment(700 * time.Millisecond)
		p.end(t, syscall.SIGKILL, false)
		watching.Wait()
		p = serveBinary(t, p.data)
	}
	for _, r := range readers {
		r.read(t.Context(), p.bed)
		if r.got.String() != want || r.lost != 0 {
			t.Errorf("%d bytes, %d lost, want %d: …%q", r.got.Len(), r.lost, len(want), r.got.String()[max(0, r.got.Len()-40):])
		}
		if got := p.await(t, r.id); got.Outcome != "EXITED" || got.ExitCode == nil || *got.ExitCode != 7 || got.Usage.WallMs < 5000 {
			t.Errorf("%+v", got)
		}
	}
	p.finish(t)
}

// running returns the processes with this name in runners below cgroups.
func running(cgroups, name string) (pids []int) {
	found, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, path := range found {
		text, _ := os.ReadFile(path)
		group, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cgroup"))
		if strings.TrimSpace(string(text)) == name && sandboxtest.Within(string(group), cgroups) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestE2EEndsWhileNoServerIsThere: its outcome, usage and output are there, and
// so is the reason.
func TestE2EEndsWhileNoServerIsThere(t *testing.T) {
	t.Parallel()
	p := serveBinary(t, dataDir(t))
	p.call(t, `mutation { putEnvironment(input: {id: "small", poolSize: 1, resources: {memoryMiB: 64}}) { created } }`, nil, nil)
	runner, small := p.claimLoosely(t, "shell"), p.claimLoosely(t, "small")
	// The memory of earlier ones was used up too: that isn't counted again.
	const hungry = "head -c 500m /dev/zero | tail -c 400m >/dev/null; exit 137"
	if got := p.shell(t, small, hungry); got.Outcome != "MEMORY_LIMIT" {
		t.Fatalf("%+v", got)
	}
	exits := p.start(t, object{"runnerId": runner, "shell": "sleep 1000; echo out; echo err >&2; exit 3"})
	eats := p.start(t, object{"runnerId": small, "shell": "sleep 1000; " + hungry})
	limited := p.start(t, object{"runnerId": runner, "shell": "tail -f /dev/null; true", "timeLimit": 3})
	wait.For(t, "all run", func() bool { return len(running(p.cgroups, "sleep")) == 2 && len(running(p.cgroups, "tail")) == 1 })
	p.end(t, syscall.SIGKILL, false)
	p.wake(t, 2)
	wait.For(t, "they end, and only their agents are there", func() bool { return len(running(p.cgroups, "sh"))+len(running(p.cgroups, "tail")) == 0 })
	p = serveBinary(t, p.data)
	if got := p.await(t, exits); got.Outcome != "EXITED" || *got.ExitCode != 3 || got.stream("STDOUT") != "out\n" || got.stream("STDERR") != "err\n" {
		t.Errorf("%+v", got)
	}
	if got := p.await(t, limited); got.Outcome != "TIME_LIMIT" || got.Usage.WallMs < 3000 {
		t.Errorf("%+v", got)
	}
	if got := p.await(t, eats); got.Outcome != "MEMORY_LIMIT" {
		t.Errorf("%+v", got)
	}
	fails := p.start(t, object{"runnerId": small, "shell": "sleep 1000; exit 137"})
	wait.For(t, "it runs", func() bool { return len(running(p.cgroups, "sleep")) == 1 })
	p.end(t, syscall.SIGKILL, false)
	p.wake(t, 1)
	wait.For(t, "it ends", func() bool { return len(running(p.cgroups, "sh")) == 0 })
	p = serveBinary(t, p.data)
	if got := p.await(t, fails); got.Outcome != "EXITED" {
		t.Errorf("%+v", got)
	}
	p.finish(t)
}

// TestE2EStdinAndKeysOutliveTheServer also has a whole run go on.
func TestE2EStdinAndKeysOutliveTheServer(t *testing.T) {
	t.Parallel()
	p := serveBinary(t, dataDir(t))
	runner := p.claimLoosely(t, "shell")
	start := object{"runnerId": runner, "shell": "cat; echo end", "stdin": true, "idempotencyKey": "k"}
	cat := p.start(t, start)
	write := func(input object) int {
		t.Helper()
		var out struct{ WriteStdin struct{ Offset int } }
		input["executionId"] = cat
		p.call(t, `mutation($in: WriteStdinInput!) { writeStdin(input: $in) { offset } }`, object{"in": input}, &out)
		return out.WriteStdin.Offset
	}
	write(object{"text": "one "})
	run := object{"environmentId": "shell", "shell": "sleep 1; cat", "stdin": strings.Repeat("stdin ", 100_000), "idempotencyKey": "r", "waitFor": 120}
	whole := func() string {
		var out struct {
			Run struct{ Execution struct{ ID string } }
		}
		p.call(t, `mutation($in: RunInput!) { run(input: $in) { execution { id } } }`, object{"in": run}, &out)
		return out.Run.Execution.ID
	}
	id := whole()
	p = p.killed(t)
	if n := write(object{"text": "one two ", "offset": 0}); n != 8 {
		t.Errorf("offset %d", n)
	}
	p = p.killed(t)
	if n := write(object{"text": "three\n", "close": true}); n != 14 {
		t.Errorf("offset %d", n)
	}
	if again := p.start(t, start); again != cat {
		t.Errorf("the key gave %s, not %s", again, cat)
	}
	if got := p.await(t, cat); got.Outcome != "EXITED" || got.stream("STDOUT") != "one two three\nend\n" {
		t.Errorf("%s %q", got.Outcome, got.stream("STDOUT"))
	}
	if again := whole(); again != id {
		t.Errorf("the key gave %s, not %s", again, id)
	}
	if got := p.await(t, id); got.Outcome != "EXITED" || got.stream("STDOUT") != run["stdin"] {
		t.Errorf("%s, %d bytes", got.Outcome, len(got.stream("STDOUT")))
	}
	wait.For(t, "the run's runner goes", func() bool {
		var out struct {
			Execution struct{ Runner *struct{ ID string } }
		}
		p.call(t, `query($id: ID!) { execution(id: $id) { runner { id } } }`, object{"id": id}, &out)
		return out.Execution.Runner == nil
	})
	p.finish(t)
}

// TestE2EReleasedThenKilled: what ran in a runner that was released ended with it,
// also where the server is killed before it has stored that.
func TestE2EReleasedThenKilled(t *testing.T) {
	t.Parallel()
	p := serveBinary(t, dataDir(t))
	for range 5 {
		runner := p.claimLoosely(t, "shell")
		x := p.start(t, object{"runnerId": runner, "shell": "echo hi; sleep 60"})
		wait.For(t, "it prints", func() bool {
			var out struct {
				Execution struct {
					Output struct{ Chunks []struct{ Text string } }
				}
			}
			p.call(t, `query($id: ID!) { execution(id: $id) { output { chunks { text } } } }`, object{"id": x}, &out)
			return len(out.Execution.Output.Chunks) > 0
		})
		p.call(t, `mutation($id: ID!) { releaseRunner(id: $id) { released } }`, object{"id": runner}, nil)
		p.end(t, syscall.SIGKILL, false)
		p = serveBinary(t, p.data)
		r := &reader{id: x}
		r.read(t.Context(), p.bed)
		if r.end == nil || r.end.Outcome != "RUNNER_GONE" || r.got.String() != "hi\n" {
			t.Errorf("it ended as %+v, after %q", r.end, r.got.String())
		}
	}
	p.finish(t)
}

// TestE2ECutUploadLeavesTheOldFileOrTheNew kills the server while it hands a file
// to an agent.
func TestE2ECutUploadLeavesTheOldFileOrTheNew(t *testing.T) {
	t.Parallel()
	const size = 12 << 20
	p := serveBinary(t, dataDir(t))
	runner := p.claimLoosely(t, "shell")
	update := func(content string) error {
		return p.Ask(t.Context(), `mutation($in: UpdateFilesInput!) { updateFiles(input: $in) { written } }`,
			object{"in": object{"runnerId": runner, "write": []object{{"path": "file", "text": content}}}}, nil)
	}
	content := func(i int) string { return strings.Repeat(string(rune('a'+i)), size) }
	if err := update(content(0)); err != nil {
		t.Fatal(err)
	}
	agent := agentOf(t, p.cgroups, runner)
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
		if i%4 == 0 { // the agent can't take all of it
			tell(syscall.SIGSTOP)
		}
		uploading.Go(func() { answer = update(content(i)) })
		if i%4 == 1 {
			uploading.Wait()
		} else {
			atSomeMoment(400 * time.Millisecond)
		}
		p.end(t, syscall.SIGKILL, false)
		tell(syscall.SIGCONT)
		uploading.Wait()
		p = serveBinary(t, p.data)
		wait.For(t, "the agent has given up", func() bool {
			return p.shell(t, runner, `ls -A | grep -c '^\.rockpool-'`).stream("STDOUT") == "0\n"
		})
		got := p.shell(t, runner, `stat -c %s file; head -c 1 file; tail -c 1 file`).stream("STDOUT")
		letter := func(i int) string { return strings.Repeat(string(rune('a'+i)), 2) }
		switch got {
		case fmt.Sprintf("%d\n%s", size, letter(i)):
			old, whole = i, whole+1
		case fmt.Sprintf("%d\n%s", size, letter(old)):
			cut++
			if answer == nil {
				t.Error("an upload that was answered isn't there")
			}
		default:
			t.Errorf("after upload %d the file is %q", i, got)
		}
	}
	if cut == 0 || whole == 0 {
		t.Error("not all kinds were seen, so this test shows less than it says")
	}
	t.Logf("%d were cut, %d were whole", cut, whole)
	p.finish(t)
}

// TestE2ETooMuchOutputIsLostAloud: more than may be kept is printed at once, and
// nothing is left to be collected.
func TestE2ETooMuchOutputIsLostAloud(t *testing.T) {
	t.Parallel()
	const size = 20 << 20
	data := dataDir(t)
	p := serve(t, data, rockpool(t), "serve", "--data", data, "--keep-bytes", "16777216")
	p.call(t, `mutation { putEnvironment(input: {id: "loud", poolSize: 1, outputLimit: 33554432}) { created } }`, nil, nil)
	r := &reader{id: p.start(t, object{"runnerId": p.claimLoosely(t, "loud"), "shell": "head -c 20m /dev/zero"})}
	r.read(t.Context(), p.bed)
	if r.end == nil || r.end.Outcome != "EXITED" || r.lost == 0 || int64(r.got.Len())+r.lost != size || r.got.Len() > 16<<20 {
		t.Errorf("%+v, %d bytes and %d lost of %d", r.end, r.got.Len(), r.lost, size)
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
		variables := object{"id": r.id}
		if after != "" {
			variables["after"] = after
		}
		p.call(t, `query($id: ID!, $after: Cursor) { execution(id: $id) { output(after: $after) { lostBytes cursor end } } }`, variables, &out)
		lost, after, end = lost+out.Execution.Output.LostBytes, out.Execution.Output.Cursor, out.Execution.Output.End
	}
	if lost != r.lost {
		t.Errorf("pages tell of %d lost, the watcher of %d", lost, r.lost)
	}
	p.finish(t)
}

// TestE2ERetention has more output than may be kept.
func TestE2ERetention(t *testing.T) {
	t.Parallel()
	data := dataDir(t)
	p := serve(t, data, rockpool(t), "serve", "--data", data, "--keep-bytes", "16777216")
	runner := p.claimLoosely(t, "shell")
	var ids []string
	for range 4 {
		r := &reader{id: p.start(t, object{"runnerId": runner, "shell": "head -c 6m /dev/zero | tr '\\0' x"})}
		if r.read(t.Context(), p.bed); r.end == nil || r.end.Outcome != "EXITED" || r.got.Len() != 6<<20 || r.lost != 0 {
			t.Errorf("%+v, %d bytes, %d lost", r.end, r.got.Len(), r.lost)
		}
		ids = append(ids, r.id)
	}
	p.refused(t, `query($id: ID!) { execution(id: $id) { id } }`, object{"id": ids[0]}, runtime.CodeExecutionNotFound, "")
	p.refused(t, `query($id: ID!) { execution(id: $id) { id } }`, object{"id": ids[1]}, runtime.CodeExecutionNotFound, "")
	kept := &reader{id: ids[3]}
	if kept.read(t.Context(), p.bed); kept.got.Len() != 6<<20 || kept.lost != 0 {
		t.Errorf("what is kept has %d bytes", kept.got.Len())
	}
	p.finish(t)
}
