package main

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/test/need"
)

// TestSmallSegmentsCount: the kernel keeps much more for a segment than was sent in it.
// An honest server that is slow goes on.
func TestSmallSegmentsCount(t *testing.T) {
	b := newBed(t, 0)
	const connect = `
import socket, sys, time
many, rounds, size = (int(a) for a in sys.argv[1:])
l = socket.socket()
l.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
l.bind(("127.0.0.1", 0))
l.listen(4096)
clients = [socket.create_connection(l.getsockname()) for i in range(many)]
for c in clients: c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for i in range(rounds):
    for c in clients: c.send(bytes(size))
began = time.process_time()
while time.process_time() - began < 1: pass
served = 0
for c in clients: served += len(l.accept()[0].recv(4096)) >= size
print("served", served)`
	for _, test := range []struct {
		args  []string
		want  agent.Cause
		print string
	}{
		{[]string{"100", "1", "300"}, agent.CauseSelf, "served 100\n"},
		{[]string{"300", "1000", "1"}, agent.CauseMemoryLimit, ""},
	} {
		if r := b.run(t, append([]string{"python3", "-c", connect}, test.args...)...); r.exit.Cause != test.want || r.stdout != test.print {
			t.Errorf("%q: %+v", test.args, r)
		}
	}
}

// TestProgramsCannotAskAboutSockets: the agent's socket for that, which has a number once it
// has asked, is its own.
func TestProgramsCannotAskAboutSockets(t *testing.T) {
	b := newBed(t, 0)
	const script = `
import errno, os, socket
while not any(row.split()[1] == "4" and row.split()[2] != "0" for row in open("/proc/net/netlink")): pass
print([fd for fd in range(100) if fd > 2 and os.path.exists("/proc/self/fd/%d" % fd)])
try: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)
except OSError as e: print(errno.errorcode[e.errno])`
	for _, root := range []bool{false, true} {
		r, err := b.start(t, agent.Start{Argv: []string{"python3", "-c", script}, Env: testEnv, Privileged: root})
		if err != nil || r.stdout != "[]\nEAFNOSUPPORT\n" {
			t.Errorf("root %t: %+v, %v", root, r, err)
		}
	}
}

// TestLocksAreBoundedWithoutMarks: an agent that can't switch users doesn't know whose a
// lock is. In a runner with processes of its own it takes all for each command's.
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

// newPlainAlone starts an agent without privileges that is the first process of its
// own namespace.
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

// TestALookNeedsNoNewFile: a machine may have no open file left. A look that fails is
// none, so that the next doesn't wait.
func TestALookNeedsNoNewFile(t *testing.T) {
	need.Sandboxes(t)
	c := inNetwork(t, func() {
		connect(t, "127.0.0.1", 12, 0) // which stay open
	})
	path := filepath.Join(t.TempDir(), "locks")
	if err := os.WriteFile(path, []byte("2: OFDLCK ADVISORY  WRITE -1 00:1b:1201 2 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	locks, err := openList(path)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now().Add(-2 * lookWait)
	p := &process{began: began, host: &host{marking: true, locks: locks, connections: c}}
	withoutFiles(t, func() {
		if p.Excessive() || p.lookedAt == (look{}) {
			t.Errorf("few: %+v", p.lookedAt)
		}
	})
	directory, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(directory)
	p = &process{began: began, host: &host{locks: locks, connections: &connections{diag: -1, lists: [2]*list{{fd: directory}, nil}}}}
	if p.Excessive() || p.lookedAt != (look{}) {
		t.Errorf("a look that failed counts: %+v", p.lookedAt)
	}
	p = &process{began: began, host: &host{marking: true, locks: &list{fd: directory}, connections: c}}
	if p.Excessive() || p.lookedAt != (look{}) {
		t.Errorf("a look at locks that failed counts: %+v", p.lookedAt)
	}
}

// TestSockDiagAndListsAgree: of the same sockets, in bytes that were sent at least.
func TestSockDiagAndListsAgree(t *testing.T) {
	need.Sandboxes(t)
	c := inNetwork(t, func() {
		connect(t, "127.0.0.1", 7, 1000)
		connect(t, "::1", 5, 1000)
	})
	if c.diag < 0 {
		need.Lacks(t, "the kernel has no sock_diag")
	}
	asked, err := c.ask()
	read, readErr := c.read()
	if err := errors.Join(err, readErr); err != nil {
		t.Fatal(err)
	}
	const sent = 12 * (connectionBytes + 1000)
	if asked.sockets != 12*2+2 || read.sockets != asked.sockets+len(c.lists) /* titles */ || read.size != sent || asked.size <= sent || asked.size > 2*sent {
		t.Errorf("sock_diag %+v, lists %+v", asked, read)
	}
	if many, err := c.many(); many || err != nil {
		t.Errorf("many: %t, %v", many, err)
	}
	_ = unix.Close(c.diag)
	if many, err := c.many(); many || err != nil {
		t.Errorf("by the lists: %t, %v", many, err)
	}
}

// TestUnacceptedMemory reads answers of sock_diag.
func TestUnacceptedMemory(t *testing.T) {
	socket := func(state byte, inode, queue uint32, numbers ...uint32) []byte {
		m := make([]byte, diagSize)
		m[diagState] = state
		binary.NativeEndian.PutUint32(m[diagQueue:], queue)
		binary.NativeEndian.PutUint32(m[diagInode:], inode)
		m = binary.NativeEndian.AppendUint64(m, 1<<32|8<<16|5) // INET_DIAG_SHUTDOWN, of 5 bytes
		if len(numbers) > 0 {
			m = binary.NativeEndian.AppendUint16(m, uint16(4+4*len(numbers)))
			m = binary.NativeEndian.AppendUint16(m, diagMemory)
			for _, n := range numbers {
				m = binary.NativeEndian.AppendUint32(m, n)
			}
		}
		return m
	}
	memory := []uint32{18308, 8388608, 0, 3939840, 2172, 0, 0, 7, 0}
	for name, test := range map[string]struct {
		socket []byte
		want   int64
	}{
		"not accepted":    {socket(unix.BPF_TCP_ESTABLISHED, 0, 2500, memory...), connectionBytes + 18308 + 7},
		"closed":          {socket(unix.BPF_TCP_CLOSE_WAIT, 0, 2501, memory...), connectionBytes + 18308 + 7},
		"without numbers": {socket(unix.BPF_TCP_CLOSE_WAIT, 0, 2501), connectionBytes + 2501},
		"cut off":         {socket(unix.BPF_TCP_CLOSE_WAIT, 0, 2501, memory...)[:diagSize+16], connectionBytes + 2501},
		"accepted":        {socket(unix.BPF_TCP_ESTABLISHED, 771, 2500, memory...), 0},
		"over":            {socket(unix.BPF_TCP_TIME_WAIT, 0, 0), 0},
		"half open":       {socket(unix.BPF_TCP_SYN_RECV, 0, 0), 0},
	} {
		if got := unacceptedMemory(test.socket); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// TestEachSocket reads parts of an answer.
func TestEachSocket(t *testing.T) {
	message := func(kind uint16, question uint32, size int) []byte {
		m := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+size))
		m = binary.NativeEndian.AppendUint16(m, kind)
		m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_MULTI)
		m = binary.NativeEndian.AppendUint32(m, question)
		return append(m, make([]byte, 4+size)...)
	}
	join := func(messages ...[]byte) (all []byte) {
		for _, m := range messages {
			all = append(all, m...)
		}
		return all
	}
	row, done := message(unix.SOCK_DIAG_BY_FAMILY, 3, diagSize), message(unix.NLMSG_DONE, 3, 4)
	refused := message(unix.NLMSG_ERROR, 3, 20)
	binary.NativeEndian.PutUint32(refused[unix.NLMSG_HDRLEN:], uint32(1<<32-int64(unix.ENOENT)))
	for name, test := range map[string]struct {
		part    []byte
		sockets int
		done    bool
		err     error
	}{
		"two":              {join(row, row), 2, false, nil},
		"one and the end":  {join(row, done), 1, true, nil},
		"another question": {join(message(unix.SOCK_DIAG_BY_FAMILY, 2, diagSize), message(unix.NLMSG_DONE, 2, 4), row), 1, false, nil},
		"an error":         {refused, 0, false, unix.ENOENT},
		"half a header":    {row[:10], 0, false, errDiag},
		"half a socket":    {join(row, row[:50]), 1, false, errDiag},
		"a short socket":   {message(unix.SOCK_DIAG_BY_FAMILY, 3, diagSize-4), 0, false, errDiag},
		"no length":        {make([]byte, 16), 0, false, errDiag},
		"nothing":          {nil, 0, false, nil},
	} {
		sockets := 0
		if done, err := eachSocket(test.part, 3, func([]byte) { sockets++ }); done != test.done || err != test.err || sockets != test.sockets {
			t.Errorf("%s: %d sockets, %t, %v", name, sockets, done, err)
		}
	}
}

// BenchmarkConnections is of one look at so many sockets, half of which nobody accepted.
func BenchmarkConnections(b *testing.B) {
	for name, many := range map[string]int{"1000": 1000, "16000": 16000} {
		c := inNetwork(b, func() {
			for left := many / 2; left > 0; left -= 4000 {
				connect(b, "127.0.0.1", min(left, 4000), 1)
			}
		})
		for how, look := range map[string]func() (tally, error){"sock_diag": c.ask, "lists": c.read} {
			b.Run(name+"/"+how, func(b *testing.B) {
				for b.Loop() {
					if t, err := look(); err != nil || t.sockets < many/2 {
						b.Fatal(t, err)
					}
				}
			})
		}
	}
}

// inNetwork calls do on a thread in a new network, and returns the connections there.
func inNetwork(t testing.TB, do func()) (c *connections) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // and ends with the thread
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = raiseLoopback()
		}
		if err == nil {
			c, err = openConnections()
		}
		for i, protocol := range []string{"tcp", "tcp6"} { // of the thread's network
			if err == nil {
				_ = unix.Close(c.lists[i].fd)
				c.lists[i], err = openList("/proc/thread-self/net/" + protocol)
			}
		}
		if err != nil {
			t.Error(err)
			return
		}
		do()
	}()
	<-ended
	if t.Failed() {
		t.FailNow()
	}
	return c
}

// connect makes connections that nobody accepts, and sends on them. They stay until the
// test ends.
func connect(t testing.TB, address string, many, size int) {
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() { _ = listener.Close() })
	for range many {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err == nil {
			t.Cleanup(func() { _ = conn.Close() })
			_, err = conn.Write(make([]byte, size))
		}
		if err != nil {
			t.Error(err)
			return
		}
	}
}

// withoutFiles calls do while this process can open none.
func withoutFiles(t *testing.T, do func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Max: before.Max}, nil); err != nil {
		t.Fatal(err)
	}
	do()
	_, err := os.Open("/proc/self/stat")
	if restore := unix.Prlimit(0, unix.RLIMIT_NOFILE, &before, nil); restore != nil || !errors.Is(err, unix.EMFILE) {
		t.Fatalf("limit: %v; restored: %v", err, restore)
	}
}
