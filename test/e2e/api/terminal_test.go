package api

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/wait"
)

const (
	resizeMutation = `mutation($in: ResizeTerminalInput!) { resizeTerminal(input: $in) { execution { id state } } }`
	signalMutation = `mutation($in: SignalExecutionInput!) { signalExecution(input: $in) { execution { id state } } }`
)

func TestE2ETerminal(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "python")
	p := sit(t, b, object{"runnerId": runner, "command": []string{"python3", "-q", "-i", "-c", "import os, sys, time, getpass"}, "terminal": object{"columns": 80, "rows": 24}})
	p.Sees(t, "STDOUT", ">>> ")
	p.Types(t, "print([os.isatty(n) for n in range(3)], os.environ['TERM'], os.get_terminal_size())\n")
	p.Sees(t, "STDOUT", "[True, True, True] xterm-256color os.terminal_size(columns=80, lines=24)\r\n")
	p.Call(t, resizeMutation, object{"in": object{"executionId": p.ID, "columns": 132, "rows": 43}}, nil)
	p.Types(t, "print(os.popen('stty size').read()); print('apart', file=sys.stderr)\n")
	p.Sees(t, "STDOUT", "43 132\r\n")
	p.Sees(t, "STDERR", "apart\r\n")
	p.Types(t, "x = getpass.getpass('k' + 'ey: ', sys.stdout); print('<' + x + '>')\n")
	p.Sees(t, "STDOUT", "key: ")
	p.Types(t, "se"+"cret\n")
	p.Sees(t, "STDOUT", "<secret>")
	p.Types(t, "print('be' + 'fore'); [time.sleep(0.01) for _ in range(100000)]\n")
	p.Sees(t, "STDOUT", "before\r\n")
	p.Types(t, "\x03")
	p.Sees(t, "STDERR", "KeyboardInterrupt")
	p.Types(t, "print('al' + 'ive')\n") // otherwise python exits as if interrupted
	p.Sees(t, "STDOUT", "alive\r\n")
	p.Sees(t, "STDOUT", ">>> ") // before the prompt a Ctrl-D would be read as a byte, as on any terminal
	p.Types(t, "\x04")
	if got := b.Await(t, p.ID); got.Outcome != "EXITED" || *got.ExitCode != 0 || strings.Count(got.Stream("STDOUT"), "secret") != 1 {
		t.Errorf("%+v", got)
	}
	b.Refused(t, resizeMutation, object{"in": object{"executionId": p.ID, "columns": 80, "rows": 24}}, runtime.CodeConflict, "")
	b.Refused(t, resizeMutation, object{"in": object{"executionId": p.ID, "columns": 0, "rows": 24}}, runtime.CodeInvalidInput, "columns")
	for field, terminal := range map[string]object{"terminal.columns": {"columns": 4097, "rows": 1}, "terminal.rows": {"columns": 1, "rows": -1}} {
		b.Refused(t, `mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`,
			object{"in": object{"runnerId": runner, "shell": "true", "terminal": terminal}}, runtime.CodeInvalidInput, field)
	}
}

func TestE2ESignals(t *testing.T) {
	t.Parallel()
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	p := sit(t, b, object{"runnerId": runner, "shell": `trap 'echo leader' USR1; sh -c 'trap "echo child; exit" USR1; echo on; while :; do sleep 0.01; done' & wait; wait`})
	p.Sees(t, "STDOUT", "on\n")
	p.Call(t, signalMutation, object{"in": object{"executionId": p.ID, "signal": "USR1"}}, nil)
	if got := b.Await(t, p.ID); got.Outcome != "EXITED" || !strings.Contains(got.Stream("STDOUT"), "child\n") || !strings.Contains(got.Stream("STDOUT"), "leader\n") {
		t.Errorf("%+v", got)
	}
	id := b.Start(t, object{"runnerId": runner, "command": []string{"sleep", "1000"}})
	b.Refused(t, signalMutation, object{"in": object{"executionId": id, "signal": "NONE"}}, runtime.CodeInvalidInput, "signal")
	b.Refused(t, resizeMutation, object{"in": object{"executionId": id, "columns": 80, "rows": 24}}, runtime.CodeInvalidInput, "executionId")
	var e *client.Error
	if err := b.Do(t.Context(), signalMutation, object{"in": object{"executionId": id, "signal": "9"}}, nil); !errors.As(err, &e) || !strings.Contains(e.Message, "HUP, ILL, INT") {
		t.Errorf("got %v, want the names of the signals", err)
	}
	b.Call(t, signalMutation, object{"in": object{"executionId": id, "signal": "SIGTERM"}}, nil)
	if got := b.Await(t, id); got.Outcome != "SIGNALED" || got.Signal != "SIGTERM" {
		t.Errorf("%+v", got)
	}
	b.Refused(t, signalMutation, object{"in": object{"executionId": id, "signal": "TERM"}}, runtime.CodeConflict, "")
	b.Refused(t, signalMutation, object{"in": object{"executionId": "none", "signal": "TERM"}}, runtime.CodeExecutionNotFound, "")

	// A hang-up, and a cancel, of a shell that ignores SIGTERM.
	for _, end := range []func(id string){
		func(id string) {
			// bash loses a signal that comes just before it reads, so it gets more until it has ended.
			wait.For(t, "bash ends", func() bool {
				var e *client.Error
				return errors.As(b.Do(t.Context(), signalMutation, object{"in": object{"executionId": id, "signal": "HUP"}}, nil), &e) && e.Extensions.Code == runtime.CodeConflict
			})
		},
		func(id string) {
			b.Call(t, `mutation($id: ID!) { cancelExecution(id: $id) { execution { id } } }`, object{"id": id}, nil)
		},
	} {
		p := sit(t, b, object{"runnerId": runner, "command": []string{"bash", "--norc", "-i"}, "terminal": object{"columns": 80, "rows": 24}})
		p.Types(t, "sleep 1000 & echo o''n\n")
		p.Sees(t, "STDOUT", "on\r\n")
		end(p.ID)
		if got := b.Await(t, p.ID); got.Outcome == "EXITED" && *got.ExitCode == 0 {
			t.Errorf("%+v", got)
		}
	}
}

func TestE2EExecutionLimits(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "python")
	if limit := b.LimitRead(t, "pids", runner); limit > 256 {
		t.Fatalf("the limit of processes is %d", limit)
	}
	for _, test := range []struct {
		limits          object
		shell           string
		outcome, signal string
	}{
		{object{"cpuSeconds": 1}, "while :; do :; done", "CPU_LIMIT", ""},
		{object{"cpuSeconds": 1}, "(while :; do :; done) & (while :; do :; done) & wait; exit 3", "CPU_LIMIT", ""},
		{object{"processes": 5}, "for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; wait", "PROCESS_LIMIT", ""},
		{object{"processes": 5, "cpuSeconds": 5}, "sleep 0.1 & sleep 0.1 & wait", "EXITED", ""},
		{object{"fileSize": 1000}, "exec head -c 2000 /dev/zero >big", "SIGNALED", "SIGXFSZ"},
		{object{"openFiles": 20}, `test "$(ulimit -n)" = 20`, "EXITED", ""},
	} {
		got := b.Run(t, object{"runnerId": runner, "shell": test.shell, "limits": test.limits, "timeLimit": 110})
		if string(got.Outcome) != test.outcome || got.Signal != test.signal || test.outcome == "EXITED" && *got.ExitCode != 0 {
			t.Errorf("%v: %s %s: %s %q", test.limits, got.Outcome, got.Signal, got.Message, got.Stream("STDERR"))
		}
	}
	for field, value := range map[string]int{"cpuSeconds": 0, "processes": 0, "openFiles": 3, "fileSize": 0} {
		b.Refused(t, `mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`,
			object{"in": object{"runnerId": runner, "shell": "true", "limits": object{field: value}}}, runtime.CodeInvalidInput, "limits."+field)
	}
}

func TestE2EPrivileged(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	b.Shell(t, runner, "echo mine >secret; chmod 600 secret")
	got := b.Run(t, object{"runnerId": runner, "privileged": true, "shell": `id -u; whoami; echo $USER; cat secret; chown 0:0 secret; stat -c %U secret; awk '$1==0{print ($2 >= 1000000000)}' /proc/self/uid_map`})
	if got.Stream("STDOUT") != "0\nroot\nroot\nmine\nroot\n1\n" {
		t.Errorf("%q %q", got.Stream("STDOUT"), got.Stream("STDERR"))
	}
	for _, script := range []string{"mount -t tmpfs x /tmp", "mknod /tmp/d b 8 0", "touch /usr/x", "chown 1000 /usr/bin/env", "touch /etc/passwd",
		"echo 1 >/proc/sys/kernel/panic", "echo b >/proc/sysrq-trigger", "cat /proc/1/environ", "readlink /proc/1/fd/3", "unshare -m true", "dmesg", "hostname x"} {
		if got := b.Run(t, object{"runnerId": runner, "privileged": true, "shell": script}); got.Outcome != "EXITED" || *got.ExitCode == 0 {
			t.Errorf("root can %s: %+v", script, got)
		}
	}
	if got := b.Shell(t, runner, "id -u; cat secret"); got.Stream("STDOUT") != "1000\n" {
		t.Errorf("the user: %+v", got)
	}
}

// TestE2ELargeFile transfers 50 MB in and out through the engine, compares every byte, and cuts an
// upload in the middle.
func TestE2ELargeFile(t *testing.T) {
	b := bed.Open(t)
	b.Put(t, object{"id": "large", "poolSize": 1, "resources": object{"workspaceMiB": 160, "memoryMiB": 384}})
	runner := runtime.RunnerID(b.Claim(t, "large"))
	engine := bed.SharedServer.Server.Engine
	const size = 50 << 20
	for _, told := range []int64{size, -1} {
		sum := sha256.New()
		source := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{byte(told)}), size), sum)
		file, err := engine.Files.Upload(access.With(t.Context(), access.Server()), runner, "dir/large", 0, false, told, source)
		if err != nil || file.Size != size || file.Mode != 0o644 || file.Owner != "runner" {
			t.Fatalf("%+v, %v", file, err)
		}
		file, content, err := engine.Files.OpenFile(access.With(t.Context(), access.Server()), runner, "dir/large", 0)
		if err != nil || file.Size != size {
			t.Fatalf("%+v, %v", file, err)
		}
		back := sha256.New()
		if n, err := io.Copy(back, content); err != nil || n != size || !bytes.Equal(back.Sum(nil), sum.Sum(nil)) {
			t.Errorf("%d bytes, %v", n, err)
		}
		_ = content.Close()
	}
	for _, told := range []int64{size, -1} {
		cut := io.MultiReader(io.LimitReader(rand.NewChaCha8([32]byte{}), 1<<20), &failingReader{})
		_, err := engine.Files.Upload(access.With(t.Context(), access.Server()), runner, "dir/large", 0, false, told, cut)
		if runtime.CodeOf(err) != runtime.CodeInvalidInput {
			t.Errorf("a cut upload: got %v, want INVALID_INPUT", err)
		}
	}
	_, err := engine.Files.Upload(access.With(t.Context(), access.Server()), runner, "dir/large", 0, false, 300<<20, io.LimitReader(rand.NewChaCha8([32]byte{}), 300<<20))
	if runtime.CodeOf(err) != runtime.CodeInvalidInput {
		t.Errorf("more than the workspace: got %v, want INVALID_INPUT", err)
	}
	// No partial file is left, though the agent may only just have noticed the cut.
	wait.For(t, "only the old file is left", func() bool {
		return b.Shell(t, string(runner), "ls -A dir; stat -c %s dir/large").Stream("STDOUT") == "large\n52428800\n"
	})
	b.Shell(t, string(runner), "truncate -s 1T sparse; mkfifo fifo; ln -s /proc/self/environ link")
	for _, path := range []string{"sparse", "fifo", "link", "/dev/zero", "dir", "none", "/proc/1/environ"} {
		if _, _, err := engine.Files.OpenFile(access.With(t.Context(), access.Server()), runner, path, 0); runtime.CodeOf(err) != runtime.CodeFileError {
			t.Errorf("%s: got %v, want FILE_ERROR", path, err)
		}
	}
	_, err = engine.Files.Upload(access.With(t.Context(), access.Server()), runner, "/usr/x", 0, false, 1, strings.NewReader("x"))
	if runtime.CodeOf(err) != runtime.CodeFileError {
		t.Errorf("a read-only path: got %v, want FILE_ERROR", err)
	}
}

type failingReader struct{}

func (*failingReader) Read([]byte) (int, error) { return 0, errors.New("the client went away") }
