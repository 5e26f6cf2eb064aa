package api

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/e2e/bed"

	"github.com/google/go-cmp/cmp"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

func TestE2EOutcomesAndOutput(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	code := func(n int) *int { return &n }
	for script, want := range map[string]struct {
		outcome                runtime.Outcome
		signal, stdout, stderr string
		code                   *int
	}{
		`echo -n Hello World`:      {outcome: "EXITED", code: code(0), stdout: "Hello World"},
		`printf 'a\tb\n\n'`:        {outcome: "EXITED", code: code(0), stdout: "a\tb\n\n"},
		`cat -invalid`:             {outcome: "EXITED", code: code(1), stderr: "cat: invalid option -- 'i'\nTry 'cat --help' for more information.\n"},
		`exit 42`:                  {outcome: "EXITED", code: code(42)},
		`exit 137`:                 {outcome: "EXITED", code: code(137)},
		`kill -9 $$`:               {outcome: "SIGNALED", signal: "SIGKILL"},
		`kill -TERM $$`:            {outcome: "SIGNALED", signal: "SIGTERM"},
		`echo out; echo err >&2`:   {outcome: "EXITED", code: code(0), stdout: "out\n", stderr: "err\n"},
		`printf '\000\033[31mred'`: {outcome: "EXITED", code: code(0), stdout: "\x00\x1b[31mred"},
		`printf '\377\376\200ok'`:  {outcome: "EXITED", code: code(0), stdout: "\xff\xfe\x80ok"},
		`(sleep 0.3; echo late) & echo early; wait`: {outcome: "EXITED", code: code(0), stdout: "early\nlate\n"},
	} {
		got := b.Shell(t, runner, script)
		if got.Outcome != want.outcome || got.Signal != want.signal || (want.code != nil && (got.ExitCode == nil || *got.ExitCode != *want.code)) {
			t.Errorf("%s: %s %v %s, want %+v", script, got.Outcome, got.ExitCode, got.Signal, want)
		}
		if want.code == nil && got.ExitCode != nil {
			t.Errorf("%s: exit code %d of what didn't exit", script, *got.ExitCode)
		}
		if got.Stream("STDOUT") != want.stdout || got.Stream("STDERR") != want.stderr || !got.Output.End {
			t.Errorf("%s printed %q and %q, want %q and %q", script, got.Stream("STDOUT"), got.Stream("STDERR"), want.stdout, want.stderr)
		}
	}
	if got := b.Run(t, object{"runnerId": runner, "command": []string{"nonesuch"}}); got.Outcome != "FAILED" || !strings.Contains(got.Message, "nonesuch") {
		t.Errorf("no such command: got %+v, want FAILED that names it", got)
	}
}

func TestE2ECharactersArriveWhole(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "python")
	want := strings.Repeat("häßlich 🐟\n", 20)
	got := b.Run(t, object{"runnerId": runner, "command": []string{"python3", "-c", `
import os, time
for c in "häßlich 🐟\n" * 20:
    os.write(1, c.encode()); time.sleep(0.001)`}})
	text := ""
	for _, c := range got.Output.Chunks {
		text += c.Text
	}
	if text != want || got.Stream("STDOUT") != want {
		t.Errorf("%q, %q", text, got.Stream("STDOUT"))
	}
}

// TestE2ETextMatchesItsBytes prints each byte separately. Depending on the times between them, the
// agent joins the bytes of a character or doesn't (see agent/serve). No byte is lost, and a chunk's
// text is always that of its bytes.
func TestE2ETextMatchesItsBytes(t *testing.T) {
	b := bed.Open(t)
	got := b.Run(t, object{"runnerId": b.Claim(t, "python"), "command": []string{"python3", "-c", `
import os, time
for b in "häßlich 🐟\n".encode() * 20:
    os.write(1, bytes([b])); time.sleep(0.001)`}})
	for _, c := range got.Output.Chunks {
		if want := strings.ToValidUTF8(string(c.Base64), "\uFFFD"); c.Text != want {
			t.Errorf("the text of %q is %q, want %q", c.Base64, c.Text, want)
		}
	}
	if want := strings.Repeat("häßlich 🐟\n", 20); got.Stream("STDOUT") != want {
		t.Errorf("%q", got.Stream("STDOUT"))
	}
}

var nasty = []string{
	"two words", "line\nbreak", "tab\there", `'single'`, `"double"`, "$HOME", "`id`", "$(id)", "; id", "a\\b", "é 🐟", "-rf", "--", "*", "a -> b", " ", "#",
}

func TestE2EWordsArriveVerbatim(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "python")
	command := append([]string{"python3", "-c", "import sys\nfor a in sys.argv[1:]: sys.stdout.write(a + '\\0')"}, nasty...)
	if got := b.Run(t, object{"runnerId": runner, "command": command}).Stream("STDOUT"); got != strings.Join(nasty, "\x00")+"\x00" {
		t.Errorf("arguments arrived as %q", got)
	}
	var variables []object
	for i, value := range nasty {
		variables = append(variables, object{"name": fmt.Sprint("V", i), "value": value})
	}
	show := fmt.Sprintf("import os, sys\nfor i in range(%d): sys.stdout.write(os.environ['V%%d' %% i] + '\\0')", len(nasty))
	got := b.Run(t, object{"runnerId": runner, "command": []string{"python3", "-c", show}, "variables": variables}).Stream("STDOUT")
	if got != strings.Join(nasty, "\x00")+"\x00" {
		t.Errorf("variables arrived as %q", got)
	}
	script := "cat <<'END'\n" + strings.Join(nasty, "\n") + "\nEND\n"
	if got := b.Shell(t, runner, script).Stream("STDOUT"); got != strings.Join(nasty, "\n")+"\n" {
		t.Errorf("the script printed %q", got)
	}
}

// A workspace is the workspace of a claimed runner.
type workspace struct {
	bed.Bed
	runner string
}

func openWorkspace(t *testing.T) workspace {
	t.Helper()
	b := bed.Open(t)
	return workspace{b, b.Claim(t, "shell")}
}

type updateResult struct {
	UpdateFiles struct {
		Written, Deleted []string
		Failed           []struct{ Path, Message string }
	}
}

func (w workspace) update(t *testing.T, input object) (out updateResult) {
	t.Helper()
	input["runnerId"] = w.runner
	w.Call(t, `mutation($in: UpdateFilesInput!) { updateFiles(input: $in) { written deleted failed { path message } } }`, object{"in": input}, &out)
	return out
}

// list returns the paths of all files.
func (w workspace) list(t *testing.T) (paths []string) {
	t.Helper()
	var out struct {
		Runner struct {
			Files struct{ Nodes []struct{ Path string } }
		}
	}
	w.Call(t, `query($id: ID!) { runner(id: $id) { files(recursive: true, first: 1000) { nodes { path } } } }`, object{"id": w.runner}, &out)
	for _, n := range out.Runner.Files.Nodes {
		paths = append(paths, n.Path)
	}
	return paths
}

func TestE2EFiles(t *testing.T) {
	w := openWorkspace(t)
	b, runner := w.Bed, w.runner
	odd := []string{`"quoted"`, "new\nline", "a -> b", "-rf", "$(touch ran)", "'", "back`tick`", "ünï🐟", "sub dir/deep/x"}
	var write []object
	for _, path := range odd {
		write = append(write, object{"path": path, "text": "in " + path})
	}
	w.update(t, object{"write": write})
	want := append(slices.Clone(odd), "sub dir", "sub dir/deep")
	got := w.list(t)
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names: %s", diff)
	}
	for _, path := range odd {
		r := b.Run(t, object{"runnerId": runner, "command": []string{"cat", "--", path}})
		if r.Stream("STDOUT") != "in "+path {
			t.Errorf("%q holds %q, %q", path, r.Stream("STDOUT"), r.Stream("STDERR"))
		}
	}
	r := b.Shell(t, runner, `stat -c '%U %a %F' -- -rf "sub dir" .; whoami`)
	if out := r.Stream("STDOUT"); out != "runner 644 regular file\nrunner 755 directory\nrunner 755 directory\nrunner\n" {
		t.Errorf("%q %q", out, r.Stream("STDERR"))
	}
	// Replaced by rename: a program that has the old file open still reads the old one.
	reading := b.Start(t, object{"runnerId": runner, "shell": `exec 3<./-rf; read go; cat <&3; cat ./-rf`, "stdin": true})
	feed := `mutation($in: WriteStdinInput!) { writeStdin(input: $in) { offset } }`
	wait.For(t, "the file is open", func() bool {
		r := b.Shell(t, runner, `for p in /proc/[0-9]*; do readlink $p/fd/3; done 2>/dev/null`)
		return strings.Contains(r.Stream("STDOUT"), "/workspace/-rf")
	})
	w.update(t, object{"write": []object{{"path": "-rf", "text": " replaced"}}})
	b.Call(t, feed, object{"in": object{"executionId": reading, "text": "\n", "close": true}}, nil)
	if r := b.Await(t, reading); r.Stream("STDOUT") != "in -rf replaced" {
		t.Errorf("after a replacement: %q", r.Stream("STDOUT"))
	}
	// A path that is both deleted and written exists afterwards.
	w.update(t, object{"delete": []string{"-rf"}, "write": []object{{"path": "-rf", "text": "new"}}})
	if r := b.Shell(t, runner, "cat ./-rf"); r.Stream("STDOUT") != "new" {
		t.Errorf("after delete and write: %q", r.Stream("STDOUT"))
	}
	move := `mutation($in: MoveFileInput!) { moveFile(input: $in) { file { path size } } }`
	var moved struct {
		MoveFile struct {
			File struct {
				Path string
				Size int
			}
		}
	}
	b.Call(t, move, object{"in": object{"runnerId": runner, "from": "-rf", "to": "sub dir/moved"}}, &moved)
	if r := b.Shell(t, runner, "cat './sub dir/moved'; ls ./-rf 2>/dev/null"); r.Stream("STDOUT") != "new" || moved.MoveFile.File.Path != "sub dir/moved" || moved.MoveFile.File.Size != 3 {
		t.Errorf("after a move: %q, %+v", r.Stream("STDOUT"), moved)
	}
	err := b.Do(t.Context(), move, object{"in": object{"runnerId": runner, "from": "sub dir/moved", "to": "sub dir/deep"}}, nil)
	if client.CodeOf(err) != runtime.CodeFileError {
		t.Errorf("over a directory: got %v, want FILE_ERROR", err)
	}
}

// TestE2EWrongFilesChangeNothing: all files of a request are checked before one is written.
func TestE2EWrongFilesChangeNothing(t *testing.T) {
	w := openWorkspace(t)
	b, runner := w.Bed, w.runner
	w.update(t, object{"write": []object{{"path": "sub dir/x", "text": "x"}, {"path": "-rf", "text": "x"}}})
	before := w.list(t)
	for _, bad := range []object{
		{"empty": []string{"."}, "write": []object{{"path": "ok", "text": "x"}, {"path": "", "text": "x"}}},
		{"empty": []string{"."}, "write": []object{{"path": "ok", "text": "x", "base64": "eA=="}}},
		{"empty": []string{"."}, "write": []object{{"path": "ok"}}},
		{"empty": []string{"."}, "write": []object{{"path": "ok", "text": "x", "mode": "999"}}},
		{"empty": []string{"."}, "write": []object{{"path": "ok", "text": "x"}, {"path": "/proc/x", "text": "x"}}},
		{"empty": []string{"."}, "write": []object{{"path": "ok", "text": "x"}, {"path": "/usr/bin/x", "text": "x"}}},
		{"empty": []string{"."}, "write": []object{{"path": "f", "text": "x"}, {"path": "f/under", "text": "x"}}},
	} {
		bad["runnerId"] = runner
		if err := b.Do(t.Context(), `mutation($in: UpdateFilesInput!) { updateFiles(input: $in) { written } }`, object{"in": bad}, nil); err == nil {
			t.Errorf("%v was accepted", bad)
		}
		if diff := cmp.Diff(before, w.list(t)); diff != "" {
			t.Fatalf("%v was refused, but changed: %s", bad, diff)
		}
	}
	b.Shell(t, runner, "mkdir mine; touch mine/x .hidden")
	w.update(t, object{"empty": []string{"."}})
	if left := w.list(t); len(left) != 0 {
		t.Errorf("emptying left %q", left)
	}
	if r := b.Shell(t, runner, "pwd; stat -c %a ."); r.Stream("STDOUT") != "/workspace\n755\n" {
		t.Errorf("the workspace is %q", r.Stream("STDOUT"))
	}
}

// TestE2EFullWorkspaceKeepsTheOldFiles: a write that doesn't fit fails and changes nothing.
func TestE2EFullWorkspaceKeepsTheOldFiles(t *testing.T) {
	w := openWorkspace(t)
	b, runner := w.Bed, w.runner
	w.update(t, object{"write": []object{{"path": "small", "text": "old"}}})
	b.Shell(t, runner, "head -c 1G /dev/zero > filler")
	full := w.update(t, object{"write": []object{{"path": "small", "text": strings.Repeat("x", 1<<20)}}})
	if len(full.UpdateFiles.Failed) != 1 || full.UpdateFiles.Failed[0].Path != "small" {
		t.Errorf("on a full disk: %+v", full)
	}
	if r := b.Shell(t, runner, "cat small; ls -A"); r.Stream("STDOUT") != "oldfiller\nsmall\n" {
		t.Errorf("on a full disk: %q", r.Stream("STDOUT"))
	}
}

func TestE2EStdin(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	id := b.Start(t, object{"runnerId": runner, "command": []string{"sort"}, "stdin": true})
	write := `mutation($in: WriteStdinInput!) { writeStdin(input: $in) { offset } }`
	for _, in := range []object{
		{"text": "b\n"}, {"text": "b\n", "offset": 0}, {"base64": "YQo=", "offset": 2}, {"close": true},
	} {
		in["executionId"] = id
		b.Call(t, write, object{"in": in}, nil)
	}
	if got := b.Await(t, id); got.Stream("STDOUT") != "a\nb\n" {
		t.Errorf("%q", got.Stream("STDOUT"))
	}
	none := b.Run(t, object{"runnerId": runner, "command": []string{"cat"}, "timeLimit": 30})
	if none.Outcome != "EXITED" {
		t.Errorf("cat without stdin: %+v", none)
	}
}

// TestE2EConcurrentExecutionsAreIsolated runs two executions in one runner. Input, signals and the
// end of one don't reach the other.
func TestE2EConcurrentExecutionsAreIsolated(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	start := func(name string) string {
		return b.Start(t, object{"runnerId": runner, "stdin": true,
			"shell": "trap 'echo " + name + " was signalled' USR1; while read line; do echo " + name + " $line; done; until false; do sleep 30; done"})
	}
	first, second := start("first"), start("second")
	write := func(id, text string) {
		t.Helper()
		b.Call(t, `mutation($in: WriteStdinInput!) { writeStdin(input: $in) { offset } }`, object{"in": object{"executionId": id, "text": text}}, nil)
	}
	printed := func(id, want string) {
		t.Helper()
		got := ""
		wait.For(t, "it prints "+want, func() bool {
			var out struct {
				Execution struct {
					Output struct{ Chunks []struct{ Text string } }
				}
			}
			b.Call(t, `query($id: ID!) { execution(id: $id) { output { chunks { text } } } }`, object{"id": id}, &out)
			got = ""
			for _, chunk := range out.Execution.Output.Chunks {
				got += chunk.Text
			}
			return len(got) >= len(want)
		})
		if got != want {
			t.Errorf("it printed %q in place of %q", got, want)
		}
	}
	write(first, "a\n")
	write(second, "b\n")
	write(first, "c\n")
	printed(first, "first a\nfirst c\n")
	printed(second, "second b\n")
	b.Call(t, signalMutation, object{"in": object{"executionId": first, "signal": "USR1"}}, nil)
	printed(first, "first a\nfirst c\nfirst was signalled\n")
	b.Call(t, `mutation($id: ID!) { cancelExecution(id: $id) { execution { outcome } } }`, object{"id": first}, nil)
	if got := b.Await(t, first); got.Outcome != "CANCELLED" {
		t.Errorf("first: %+v", got)
	}
	write(second, "still here\n")
	printed(second, "second b\nsecond still here\n")
	b.Call(t, signalMutation, object{"in": object{"executionId": second, "signal": "KILL"}}, nil)
	if got := b.Await(t, second); got.Outcome != "SIGNALED" || got.Stream("STDOUT") != "second b\nsecond still here\n" {
		t.Errorf("second: %+v", got)
	}
}

func TestE2EChangingAnEnvironmentLeavesExecutionsAlone(t *testing.T) {
	b := bed.Open(t)
	b.Put(t, object{"id": "changing", "poolSize": 1})
	runner := b.Claim(t, "changing")
	id := b.Start(t, object{"runnerId": runner, "shell": "read go; echo undisturbed; echo $ADDED", "stdin": true})
	put := `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { environment { revision } } }`
	b.Call(t, put, object{"in": object{"id": "changing", "variables": []object{{"name": "ADDED", "value": "yes"}}}}, nil)
	size := func(n int) {
		t.Helper()
		b.Call(t, put, object{"in": object{"id": "changing", "poolSize": n}}, nil)
		wait.For(t, fmt.Sprint("the pool has ", n), func() bool {
			var out struct {
				Environment struct {
					Pool struct{ Idle, Starting, Stopping int }
				}
			}
			b.Call(t, `{ environment(id: "changing") { pool { idle starting stopping } } }`, nil, &out)
			p := out.Environment.Pool
			return p.Idle == n && p.Starting == 0 && p.Stopping == 0
		})
	}
	size(2)
	size(5)
	size(1)
	b.Call(t, `mutation($in: WriteStdinInput!) { writeStdin(input: $in) { offset } }`, object{"in": object{"executionId": id, "text": "\n"}}, nil)
	if got := b.Await(t, id); got.Outcome != "EXITED" || got.Stream("STDOUT") != "undisturbed\n\n" {
		t.Errorf("%+v", got)
	}
	if got := b.Shell(t, b.Claim(t, "changing"), "echo $ADDED"); got.Stream("STDOUT") != "yes\n" {
		t.Errorf("a new runner: %q", got.Stream("STDOUT"))
	}
}

func TestE2EClaimsAreExclusive(t *testing.T) {
	t.Parallel()
	b := bed.Open(t)
	b.Put(t, object{"id": "1", "poolSize": 4})
	b.Put(t, object{"id": "10", "poolSize": 4})
	seen := sync.Map{}
	var group sync.WaitGroup
	for i := range bed.Thorough(80, 200) {
		group.Go(func() {
			environment := []string{"1", "10"}[i%2]
			var out struct {
				ClaimRunner struct {
					Runner struct{ ID, EnvironmentID string }
				}
			}
			err := b.Do(t.Context(), `mutation($in: ClaimRunnerInput!) { claimRunner(input: $in) { runner { id environmentId } } }`,
				object{"in": object{"environmentId": environment, "waitFor": 1200}}, &out) // the last one waits for all others
			if err != nil {
				t.Error(err)
				return
			}
			runner := out.ClaimRunner.Runner
			if runner.EnvironmentID != environment {
				t.Errorf("asked for %s, got %s", environment, runner.EnvironmentID)
			}
			if _, twice := seen.LoadOrStore(runner.ID, true); twice {
				t.Errorf("runner %s was handed out twice", runner.ID)
			}
			var x struct {
				StartExecution struct{ Execution struct{ ID string } }
			}
			// The runner has nothing of an earlier holder.
			err = b.Do(t.Context(), `mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`,
				object{"in": object{"runnerId": runner.ID, "shell": "ls -A /workspace /tmp; touch /workspace/mine /tmp/mine"}}, &x)
			if err != nil {
				t.Error(err)
				return
			}
			if got := b.Await(t, x.StartExecution.Execution.ID); got.Stream("STDOUT") != "/tmp:\nhome\n\n/workspace:\n" {
				t.Errorf("a fresh runner has %q", got.Stream("STDOUT"))
			}
			if err := b.Do(t.Context(), `mutation($id: ID!) { releaseRunner(id: $id) { released } }`, object{"id": runner.ID}, nil); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

func TestE2ETypedErrors(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	start := `mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`
	put := `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`
	update := `mutation($in: UpdateFilesInput!) { updateFiles(input: $in) { written } }`
	claim := `mutation($in: ClaimRunnerInput!) { claimRunner(input: $in) { runner { id } } }`
	stdin := `mutation($in: WriteStdinInput!) { writeStdin(input: $in) { offset } }`
	for _, c := range []struct {
		query string
		in    object
		code  runtime.Code
		field string
	}{
		{claim, object{"environmentId": "none"}, runtime.CodeEnvironmentNotFound, ""},
		{claim, object{"environmentId": "shell", "inactivityTimeout": -1}, runtime.CodeInvalidInput, "inactivityTimeout"},
		{start, object{"runnerId": "none", "command": []string{"true"}}, runtime.CodeRunnerGone, ""},
		{start, object{"runnerId": runner, "command": []string{}}, runtime.CodeInvalidInput, "command"},
		{start, object{"runnerId": runner}, runtime.CodeInvalidInput, "command"},
		{start, object{"runnerId": runner, "command": []string{"true"}, "shell": "true"}, runtime.CodeInvalidInput, "command"},
		{start, object{"runnerId": runner, "command": []string{"true"}, "timeLimit": 1 << 30}, runtime.CodeInvalidInput, "timeLimit"},
		{put, object{"id": "x", "poolSize": -1}, runtime.CodeInvalidInput, "poolSize"},
		{put, object{"id": "x", "poolSize": 1_000_000}, runtime.CodeInvalidInput, "poolSize"},
		{put, object{"id": "x", "resources": object{"memoryMiB": 0}}, runtime.CodeInvalidInput, "resources.memoryMiB"},
		{put, object{"id": "a/b"}, runtime.CodeInvalidInput, "id"},
		{put, object{"id": "x", "image": "Debian 12"}, runtime.CodeInvalidInput, "image"},
		{put, object{"id": "x", "network": object{"access": true}}, runtime.CodeInvalidInput, "network.access"},
		{put, object{"id": "x", "isolation": "GVISOR"}, runtime.CodeInvalidInput, "isolation"},
		{put, object{"id": "shell", "ifRevision": 99}, runtime.CodeConflict, ""},
		{update, object{"runnerId": runner, "write": []object{{"path": "a", "text": "x", "base64": "eA=="}}}, runtime.CodeInvalidInput, "write.0.text"},
		{update, object{"runnerId": runner, "write": []object{{"path": "a"}}}, runtime.CodeInvalidInput, "write.0.text"},
		{stdin, object{"executionId": "none", "text": "x"}, runtime.CodeExecutionNotFound, ""},
	} {
		b.Refused(t, c.query, object{"in": c.in}, c.code, c.field)
	}
	b.Refused(t, `{ execution(id: "none") { id } }`, nil, runtime.CodeExecutionNotFound, "")
	var out struct {
		Environment, Runner *struct{ ID string }
	}
	b.Call(t, `{ environment(id: "x") { id } runner(id: "none") { id } }`, nil, &out)
	if out.Environment != nil || out.Runner != nil {
		t.Errorf("found objects that were refused or never existed: %+v", out)
	}
}

func TestE2ERunCommand(t *testing.T) {
	b := bed.Open(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "it's a test.py")
	err := os.WriteFile(program, []byte("import sys\nprint('hello', sys.stdin.read(), flush=True)\nprint('oops', file=sys.stderr)\nsys.exit(3)\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	binary := bed.Rockpool(t)
	out, errout, code := bed.RunProgram(t, strings.NewReader("input"), binary, "run", "--server", b.Address, "--env", "python", "--stdin", program)
	if out != "hello input\n" || bed.WithoutWaitingLine(errout) != "oops\n" || code != 3 {
		t.Errorf("%q, %q, %d", out, errout, code)
	}
	if out, errout, code := bed.RunProgram(t, nil, binary, "run", "--server", b.Address, "--env", "shell", "--time-limit", "1", "--", "sleep", "9"); code != 124 || !strings.Contains(errout, "time limit") {
		t.Errorf("%q, %q, %d", out, errout, code)
	}
	if out, errout, code := bed.RunProgram(t, nil, binary, "run", "--server", b.Address, "--env", "none", "--", "true"); code != 125 || !strings.Contains(errout, "none") {
		t.Errorf("%q, %q, %d", out, errout, code)
	}
}
