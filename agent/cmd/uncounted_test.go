package main

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/test/need"
)

// The kernel keeps much more memory for a segment than its bytes. A slow, honest server must not be
// killed.
func TestSmallSegmentsCount(t *testing.T) {
	b := newBed(t, 0)
	const connect = `
import socket, sys, time
many, rounds, size, lasts = (int(a) for a in sys.argv[1:])
l = socket.socket()
l.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
l.bind(("127.0.0.1", 0))
l.listen(4096)
clients = [socket.create_connection(l.getsockname()) for i in range(many)]
for c in clients: c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for i in range(rounds):
    for c in clients: c.send(bytes(size))
began = time.process_time()
while time.process_time() - began < lasts: pass
served = 0
for c in clients: served += len(l.accept()[0].recv(4096)) >= size
print("served", served)`
	for _, test := range []struct {
		args  []string
		want  agent.Cause
		print string
	}{
		{[]string{"100", "1", "300", "1"}, agent.CauseSelf, "served 100\n"},
		{[]string{"300", "1000", "1", "60"}, agent.CauseMemoryLimit, ""}, // whenever it is looked at
	} {
		if r := b.run(t, append([]string{"python3", "-c", connect}, test.args...)...); r.exit.Cause != test.want || r.stdout != test.print {
			t.Errorf("%q: %+v", test.args, r)
		}
	}
}

// Programs can't use the agent's sock_diag socket, although it gets a number when the agent first
// uses it.
func TestProgramsCannotUseSockDiag(t *testing.T) {
	b := newBed(t, 0)
	const script = `
import errno, os, socket
while not any(row.split()[1] == "4" and row.split()[2] != "0" for row in open("/proc/net/netlink")): pass
print([fd for fd in range(100) if fd > 2 and os.path.exists("/proc/self/fd/%d" % fd)])
try: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)
except OSError as e: print(errno.errorcode[e.errno])`
	for _, root := range []bool{false, true} {
		r, err := b.start(t, agent.Start{Argv: []string{"python3", "-c", script}, Env: testEnv, Privileged: root})
		if err != nil || r.stdout != "[]\nEPROTONOSUPPORT\n" {
			t.Errorf("root %t: %+v, %v", root, r, err)
		}
	}
}

// An agent that can't switch users doesn't know which command holds a lock. In a runner with its
// own PID namespace it counts all locks for each command.
func TestLocksAreBoundedWithoutMarks(t *testing.T) {
	need.Sandboxes(t)
	b := newPlainAlone(t)
	const lock = `
import fcntl, sys, time
many = int(sys.argv[1])
files = [open("f%d" % i, "w") for i in range(many // 1000 + 1)]
for i in range(many): fcntl.lockf(files[i // 1000], fcntl.LOCK_EX, 1, 2 * (i % 1000))
began = time.monotonic()
while time.monotonic() - began < 30 and many > 4096 or time.monotonic() - began < 2: pass
print("held", many)`
	if r := b.run(t, "python3", "-c", lock, "4000"); r.stdout != "held 4000\n" {
		t.Errorf("few: %+v", r)
	}
	if r := b.run(t, "python3", "-c", lock, "8000"); r.exit.Cause != agent.CauseMemoryLimit {
		t.Errorf("many: %+v", r)
	}
}

// newPlainAlone starts an agent without privileges that is the first process of its own PID
// namespace.
func newPlainAlone(t *testing.T) *bed {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent-plain")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	binary := filepath.Join(dir, "agent")
	b := &bed{socket: filepath.Join(dir, "s")}
	if err := errors.Join(os.Chmod(dir, 0o777|os.ModeSticky), os.Link(agentBinary, binary)); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", b.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	file, err := listener.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := exec.Command("sh", "-c", `mount --make-rprivate / && mount -t proc proc /proc && exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"`,
		"sh", binary, "serve", "--workspace", dir)
	cmd.ExtraFiles = []*os.File{file}
	cmd.Stderr = testWriter{t}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the parent-death signal is the thread's
	t.Cleanup(runtime.UnlockOSThread)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b.pid = cmd.Process.Pid
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return b
}
