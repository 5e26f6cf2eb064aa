package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/agent"
)

// Only one of the kernel's limits prevents cores for a program of the machine. Programs can't
// change it. A program that disables cores itself gets success.
func TestProgramsCannotEnableCores(t *testing.T) {
	b := newBed(t, 0)
	b.compile(t, `
#define _GNU_SOURCE
#include <stdio.h>
#include <errno.h>
#include <unistd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
int main(void) {
	struct rlimit none = {0, 0}, old = {7, 7};
	printf("%d", setrlimit(RLIMIT_CORE, &none));
	printf(" %ld", syscall(SYS_prlimit64, 0, RLIMIT_CORE, &none, &old));
	printf(" %d", errno == EPERM);
#ifdef SYS_setrlimit
	printf(" %ld", syscall(SYS_setrlimit, RLIMIT_CORE, &none));
#endif
	getrlimit(RLIMIT_CORE, &old);
	printf(" %lu %lu\n", old.rlim_cur, old.rlim_max);
}`)
	for _, root := range []bool{false, true} {
		r, err := b.start(t, agent.Start{Argv: []string{"./t"}, Env: testEnv, Privileged: root})
		if err != nil || strings.ReplaceAll(r.stdout, " 0 1 1", " 1 1") != "0 -1 1 1 1\n" {
			t.Errorf("root %t: %+v, %v", root, r, err)
		}
	}
}

// A command can't raise its limit of open files, with or without limits of its own.
func TestCommandsCannotRaiseTheirOpenFiles(t *testing.T) {
	b := newBed(t, 0)
	const count = `
import os, resource
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
try: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
except (ValueError, OSError): pass
n = []
try:
    while True: n.append(os.open("/dev/null", os.O_RDONLY))
except OSError: print(max(n) + 1)`
	for _, limits := range []*agent.Limits{nil, {FileSize: 1 << 20}, {OpenFiles: 4096}} {
		r, err := b.start(t, agent.Start{Argv: []string{"python3", "-c", count}, Env: testEnv, Limits: limits})
		if err != nil || r.stdout != "512 512\n512\n" {
			t.Errorf("with %+v: %+v, %v", limits, r, err)
		}
	}
}

// No control group counts data that waits in netlink sockets, so a runner may have only a few at a
// time.
func TestNetlinkSocketsAreLimited(t *testing.T) {
	b := newBed(t, 0)
	const script = `
import errno, os, socket
kept = []
def one(): kept.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))
try:
    while len(kept) < 100: one()
except OSError as e: print(len(kept), errno.errorcode[e.errno])
kept.pop().close()
one()
print(len(kept), [name for _, name in socket.if_nameindex()] if not kept.clear() else "")`
	if r := b.run(t, "python3", "-c", script); r.stdout != "16 ENOBUFS\n16 ['lo']\n" {
		t.Errorf("%+v", r)
	}
	if r := b.run(t, "python3", "-c", "import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); print('again')"); r.stdout != "again\n" {
		t.Errorf("after all of them were used: %+v", r)
	}
}

// System V objects outlive the processes that created them. They must be removed after the last
// command, and not while another one runs.
func TestSegmentsEndWithTheLastCommand(t *testing.T) {
	b := newBed(t, 0)
	b.compile(t, `
#include <stdio.h>
#include <unistd.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
int main(int n, char **v) {
	int flags = n > 1 ? IPC_CREAT | 0600 : 0;
	int m = msgget(77, flags), s = semget(77, n > 1 ? 3 : 0, flags), h = shmget(77, n > 1 ? 4096 : 0, flags);
	for (int i = 0; n > 1 && i < 20; i++) semget(IPC_PRIVATE, 1, 0600);
	printf("%d %d %d\n", m >= 0, s >= 0, h >= 0);
	fflush(stdout);
	if (n > 2) pause();
}`)
	const all, none = "1 1 1\n", "0 0 0\n"
	sees := func(want string, argv ...string) {
		t.Helper()
		if r := b.run(t, argv...); r.stdout != want {
			t.Errorf("%q: %+v, want %q", argv, r, want)
		}
	}
	sees(all, "./t", "make")
	sees(none, "./t")
	for _, root := range []bool{false, true} {
		s, err := b.session(t, agent.Start{Argv: []string{"./t", "make", "stay"}, Env: testEnv, Privileged: root})
		if err != nil {
			t.Fatal(err)
		}
		p := &person{t: t, s: s}
		p.sees(1, all)
		sees(all, "./t")
		if err := s.Kill(0); err != nil {
			t.Fatal(err)
		}
		p.ends()
		sees(none, "./t")
	}
	left, err := b.start(t, agent.Start{Argv: []string{"sh", "-c", "cat /proc/sysvipc/*"}, Env: testEnv, Privileged: true})
	if err != nil || strings.Count(left.stdout, "\n") != 3 {
		t.Errorf("left: %+v, %v", left, err)
	}
}

// If containers share the IPC namespace, System V objects stay when a command ends. Otherwise all
// are removed.
func TestSharedIPCObjectsAreKept(t *testing.T) {
	for _, test := range []struct {
		flags []string
		want  string
	}{
		{nil, "1\n"}, // a line of titles
		{[]string{"--shared-ipc"}, "2\n"},
	} {
		b := newBed(t, 0, test.flags...)
		if r := b.run(t, "python3", "-c", "import ctypes; print(ctypes.CDLL(None).semget(77, 1, 0o1600) >= 0)"); r.stdout != "True\n" {
			t.Fatalf("%q: %+v", test.flags, r)
		}
		if r := b.sh(t, "grep -c . /proc/sysvipc/sem"); r.stdout != test.want {
			t.Errorf("%q: lines of semaphores: %+v, want %q", test.flags, r, test.want)
		}
	}
}

// No control group counts file locks, so the agent kills a program with many.
func TestManyLocksEndAProgram(t *testing.T) {
	b := newBed(t, 0)
	const lock = `
import fcntl, os, sys, time
held = 0
while held < int(sys.argv[1]):
    if held %% 1000 == 0: file = open("/tmp/f%%d.%%d" %% (os.getpid(), held), "w")
    fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * (1000 - held %% 1000))
    held += 1
    keep = globals().setdefault("kept", []); keep.append(file)
began = time.process_time()
while time.process_time() - began < %s: pass
print("held", held)`
	if r := b.run(t, "python3", "-c", fmt.Sprintf(lock, "1"), "4000"); r.stdout != "held 4000\n" {
		t.Errorf("few: %+v", r)
	}
	for _, script := range []string{
		fmt.Sprintf(lock, "30"),
		"import os\nfor i in range(3): os.fork()\n" + fmt.Sprintf(lock, "30"), // 8 processes
	} {
		count := "100000"
		if strings.Contains(script, "fork") {
			count = "1000"
		}
		if r := b.run(t, "python3", "-c", script, count); r.exit.Cause != agent.CauseMemoryLimit || r.stdout != "" {
			t.Errorf("many: %+v", r)
		}
	}
	// Locks of open file descriptions (OFDLCK) are the machine's: every namespace lists them.
	if r := b.sh(t, "grep -c POSIX /proc/locks"); r.stdout != "0\n" {
		t.Errorf("left: %+v", r)
	}
}

// No control group counts unaccepted connections, or the data sent on them, until a program accepts
// them.
func TestManyUnacceptedConnectionsEndAProgram(t *testing.T) {
	b := newBed(t, 0)
	const connect = `
import socket, sys, time
many, size, accepts = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "accept"
kept = []
for i in range(many):
    if i % 3000 == 0:
        l = socket.socket(); l.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20); l.bind(("127.0.0.1", 0)); l.listen(4096); kept.append(l)
    c = socket.create_connection(l.getsockname())
    if size: c.send(bytes(size))
    if accepts: l.accept()[0].close()
    c.close()
began = time.process_time()
while time.process_time() - began < 1: time.sleep(float(sys.argv[4])) # with a pause it lasts until it is ended
print("made", many)`
	for _, test := range []struct {
		args []string
		want agent.Cause
	}{
		{[]string{"100", "0", "no", "0"}, agent.CauseSelf},
		{[]string{"9000", "0", "accept", "0"}, agent.CauseSelf},
		{[]string{"9000", "0", "no", "0.01"}, agent.CauseMemoryLimit},
		{[]string{"300", "200000", "no", "60"}, agent.CauseMemoryLimit}, // which it sleeps on
	} {
		if r := b.run(t, append([]string{"python3", "-c", connect}, test.args...)...); r.exit.Cause != test.want {
			t.Errorf("%q: %+v", test.args, r)
		}
	}
}
