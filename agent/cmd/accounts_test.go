package main

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

// TestCoresAreRefusedToPipes: the kernel knows one limit that refuses cores to a
// program of the machine's. It stays whatever a program asks for, and the program has
// what it asks for: no core.
func TestCoresAreRefusedToPipes(t *testing.T) {
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

// TestOpenFilesAreBounded: a command can't raise what it has, with limits of its own or
// without.
func TestOpenFilesAreBounded(t *testing.T) {
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

// TestNetlinkSocketsAreCounted: what waits in them is no control group's, so a runner
// has few at a time.
func TestNetlinkSocketsAreCounted(t *testing.T) {
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

// TestSegmentsEndWithTheLastCommand: what System V has between processes outlives
// these, but no command that another runs beside.
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

// TestSocketsOf reads a row of /proc/net/protocols.
func TestSocketsOf(t *testing.T) {
	const text = "protocol  size sockets  memory press\nNETLINK   1096     12      -1   NI\nTCP       2304  x"
	for protocol, want := range map[string]int{"NETLINK": 12, "TCP": mostNetlink, "UDP": mostNetlink} {
		if got := socketsOf([]byte(text), protocol); got != want {
			t.Errorf("%s: %d, want %d", protocol, got, want)
		}
	}
}

// TestOwnsIPC: the machine's own objects are nobody's to remove.
func TestOwnsIPC(t *testing.T) {
	var stat unix.Stat_t
	if err := unix.Stat("/proc/self/ns/ipc", &stat); err != nil {
		t.Fatal(err)
	}
	if ownsIPC() {
		t.Error("a test has them for itself")
	}
}
