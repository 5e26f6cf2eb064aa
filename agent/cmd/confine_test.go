package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rockpool/rockpool/agent"
)

func TestConfinement(t *testing.T) {
	b := newBed(t, 0)
	status := b.run(t, "cat", "/proc/self/status").stdout
	for _, line := range []string{
		"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000",
		"CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "Uid:\t1000\t1000\t1000\t1000",
	} {
		if !strings.Contains(status, line+"\n") {
			t.Errorf("no %q in\n%s", line, status)
		}
	}
	for _, test := range []struct{ script, want string }{
		{"unshare -U true; unshare -m true", "Operation not permitted"},
		{"cat /proc/1/environ", "Permission denied"},
		{"cat /proc/1/mem", "Permission denied"},
		{"ls /proc/1/fd/", "Permission denied"},
		{"mount -t tmpfs x /tmp", ""},
		{"kill -9 1", "Operation not permitted"},
		{"echo 1 >/etc/passwd", ""},
	} {
		r := b.sh(t, test.script)
		if r.exit.Code == 0 || !strings.Contains(r.stderr, test.want) {
			t.Errorf("%s: code %d, %q", test.script, r.exit.Code, r.stderr)
		}
	}
	// ls opens one of its own.
	if fds := b.sh(t, "exec ls /proc/self/fd").stdout; fds != "0\n1\n2\n3\n" {
		t.Errorf("descriptors %q", fds)
	}
	if got := b.sh(t, "until grep -q 500 /proc/$$/oom_score_adj; do sleep 0.05; done; cat /proc/$$/oom_score_adj; umask; ps -o sid= -p $$ 2>/dev/null | tr -d ' ' | sed s/$$/own/").stdout; !strings.HasPrefix(got, "500\n0022\n") {
		t.Errorf("limits %q", got)
	}
}

// The test makes system calls from C, and by the entry points of other architectures.
func TestFilterStopsForeignCalls(t *testing.T) {
	killed := "Bad system call"
	err := exec.Command(compiled(t, "int main(void) { "+call32+" }")).Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.Sys().(syscall.WaitStatus).Signal() == syscall.SIGSEGV {
		killed = "Segmentation fault" // this kernel has no 32-bit calls, for anybody
	}
	const source = `
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#define TRY(what) do { errno = 0; long r = what; printf("%s = %s\n", #what, r < 0 ? strerrorname_np(errno) : "done"); } while (0)
int main(void) {
	TRY(syscall(SYS_mount, 0, 0, 0, 0, 0));
	TRY(syscall(SYS_open_tree, -1, "", 0));
	TRY(syscall(SYS_bpf, 0, 0, 0));
	TRY(syscall(SYS_io_uring_setup, 1, 0));
	TRY(syscall(SYS_ptrace, 0, 0, 0, 0));
	TRY(syscall(SYS_keyctl, 0, 0, 0));
	TRY(syscall(SYS_clone3, 0, 0));
	TRY(syscall(SYS_clone, 0x10000000 | 17, 0, 0, 0, 0));
	TRY(syscall(SYS_clone, 0x5500000000L | 0x20000 | 17, 0, 0, 0, 0));
	TRY(ioctl(0, 0x5412, "x"));
	TRY(syscall(SYS_ioctl, 0, 0x100005412UL, "x"));
	fflush(stdout);
	for (int i = 0; i < 2; i++) {
		pid_t p = fork();
		if (p == 0) {
			if (i == 0) { syscall(0x40000000 + 39); } else { ` + call32 + ` }
			_exit(0);
		}
		int s; waitpid(p, &s, 0);
		printf("foreign %d: %s\n", i, WIFSIGNALED(s) ? strsignal(WTERMSIG(s)) : "done");
	}
}`
	b := newBed(t, 0)
	b.compile(t, source)
	got := b.run(t, "./t").stdout
	for _, want := range []string{
		"SYS_mount, 0, 0, 0, 0, 0) = EPERM", "SYS_open_tree, -1, \"\", 0) = EPERM", "SYS_bpf, 0, 0, 0) = EPERM",
		"SYS_io_uring_setup, 1, 0) = EPERM", "SYS_ptrace, 0, 0, 0, 0) = EPERM", "SYS_keyctl, 0, 0, 0) = EPERM",
		"SYS_clone3, 0, 0) = ENOSYS", "0x10000000 | 17, 0, 0, 0, 0) = EPERM", "0x20000 | 17, 0, 0, 0, 0) = EPERM",
		"0x5412, \"x\") = EPERM", "0x100005412UL, \"x\") = EPERM",
		"foreign 0: Bad system call", "foreign 1: " + killed,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("no %q", want)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

// Programs test what a kernel has with flags that no kernel knows. Each call that the filter judges
// by its arguments must answer them as the kernel does.
func TestUnknownArgumentsGetTheKernelsAnswer(t *testing.T) {
	const source = `
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#define TRY(call, ...) do { errno = 0; long r = syscall(SYS_##call, __VA_ARGS__); \
	printf("%s(%s) %s\n", #call, #__VA_ARGS__, r < 0 ? strerrorname_np(errno) : "done"); } while (0)
#define ALL ~0UL
int main(void) {
	TRY(clone, ALL, 0, 0, 0, 0);
	TRY(clone, 0x20200 | 17, 0, 0, 0, 0);
	TRY(clone, 0x10000200 | 17, 0, 0, 0, 0);
	TRY(memfd_create, 0, ALL);
	TRY(memfd_create, "m", ALL);
	TRY(memfd_create, "m", 0x20);
	TRY(memfd_create, "m", 0x24);
	TRY(memfd_create, "m", 0x18);
	TRY(memfd_create, "m", 21U << 26);
	TRY(mmap, 0, 4096, 3, ALL, -1, 0);
	TRY(mmap, 0, 4096, 3, 0x40002, -1, 0);
	TRY(mmap, 0, 4096, 3, 0x40002, 1, 0);
	TRY(mmap, 0, 4096, 3, 0x40022 | 5U << 26, -1, 0);
	TRY(shmget, ALL, ALL, ALL);
	TRY(shmget, 0, 4096, 01000 | 04000 | 5U << 26);
	TRY(socket, ALL, ALL, ALL);
	TRY(socket, ALL, 1, 0);
	TRY(socket, 46, 1, 0);
	TRY(socket, 46, 12, 0);
	TRY(socket, 1, ALL, 0);
	TRY(socket, 2, ALL, 0);
	TRY(socket, 2, 12, 0);
	TRY(socket, 17, 12, 0);
	TRY(socket, 2, 1, ALL);
	TRY(socket, 2, 2, 263);
	TRY(socket, 10, 1, 1000);
	TRY(socket, 16, 3, ALL);
	TRY(socket, 16, 3, 32);
	TRY(socket, 16, 1, 0);
	TRY(socketpair, ALL, ALL, ALL, 0);
	TRY(socketpair, 1, ALL, 0, 0);
	int pair[2];
	TRY(socketpair, 1, 12, 0, pair);
	TRY(setxattr, ".", "user.a", "", 0, ALL);
	TRY(lsetxattr, ".", "user.a", "", 0, 4);
	TRY(fsetxattr, 1, "user.a", "", 0, ALL);
	TRY(fcntl, 1, ALL, ALL);
	TRY(fadvise64, 1, 0, 0, ALL);
	TRY(seccomp, ALL, ALL, ALL);
	TRY(prctl, ALL, ALL, ALL, ALL, ALL);
	TRY(personality, ALL);
	TRY(setrlimit, ALL, ALL);
	TRY(prlimit64, 0, ALL, 0, 0);
	TRY(ioctl, 1, ALL, ALL);
	int s = syscall(SYS_socket, 2, 1, 0);
	TRY(setsockopt, s, ALL, ALL, ALL, ALL);
	TRY(setsockopt, s, 1, ALL, "1234", 4);
	TRY(setsockopt, s, 6, ALL, "1234", 4);
}`
	b := newBed(t, 0)
	b.compile(t, source)
	plain, err := exec.Command(compiled(t, source)).Output()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(plain), "\n"), strings.Split(b.run(t, "./t").stdout, "\n")); diff != "" {
		t.Errorf("the kernel's answers (-) and the agent's (+):\n%s", diff)
	}
	text, err := os.ReadFile("confinement/testdata/calls.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, "\t")
		if strings.HasSuffix(line, "\tby arguments\n") && !strings.Contains("\n"+string(plain), "\n"+name+"(") {
			t.Errorf("%s isn't tried", name)
		}
	}
}

// call32 makes a system call of 32-bit programs, in C.
const call32 = `long r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(20));`

// The test makes every refused system call, as a user and as root of the runner.
func TestFilterRefuses(t *testing.T) {
	const source = `
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int n, char **v) {
	for (int i = 1; i < n; i++) {
		errno = 0;
		long r = syscall(atol(v[i]), 0, 0, 0, 0, 0, 0);
		printf("%s %s\n", v[i], r < 0 ? strerrorname_np(errno) : "done");
	}
}`
	const uretprobe, uprobe = 335, 336 // of x86-64; on arm64 there is nothing
	b := newBed(t, 0)
	b.compile(t, source)
	argv, want := []string{"./t"}, ""
	judged := judgedCalls(t)
	for number := range 1024 { // twice as many as there are
		if number == uretprobe || number == uprobe {
			continue // newer kernels don't ask a filter, and end a program that calls these by hand
		}
		result := judged[strconv.Itoa(number)]
		if result == "" {
			result = "ENOSYS"
		}
		if result == "ENOSYS" || result == "EPERM" {
			argv = append(argv, strconv.Itoa(number))
			want += fmt.Sprintln(number, result)
		}
	}
	for _, root := range []bool{false, true} {
		r, err := b.start(t, agent.Start{Argv: argv, Env: testEnv, Privileged: root})
		if err != nil {
			t.Fatal(err)
		}
		if r.stdout != want {
			t.Errorf("root %t: %+v %s", root, r.exit, cmp.Diff(want, r.stdout))
		}
	}
}

// judgedCalls returns the filter's decision about each call of this architecture, by number. The
// tests of package confinement verify the table.
func judgedCalls(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("confinement/testdata/calls.txt")
	if err != nil {
		t.Fatal(err)
	}
	column := map[string]int{"amd64": 1, "arm64": 2}[runtime.GOARCH]
	judged := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); len(fields) == 4 {
			judged[fields[column]] = fields[3]
		}
	}
	if len(judged) < 300 {
		t.Fatalf("%d calls are listed", len(judged))
	}
	return judged
}

// compile writes a C program to the workspace and compiles it as t.
func (b *bed) compile(t testing.TB, source string) {
	t.Helper()
	program, err := os.ReadFile(compiled(t, source))
	if err != nil {
		t.Fatal(err)
	}
	b.put(t, agent.Write{Path: "t", Size: int64(len(program)), Mode: 0o755}, string(program))
}

// compiled returns the path of a compiled C program.
func compiled(t testing.TB, source string) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Fatal("needs gcc")
	}
	program := filepath.Join(t.TempDir(), "t")
	if err := os.WriteFile(program+".c", []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(gcc, "-w", "-static", "-o", program, program+".c", "-lpthread").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}
