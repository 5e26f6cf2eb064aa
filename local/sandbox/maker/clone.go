package maker

/*
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>

// struct call is one system call of a script, and struct failure is what the process reports.
// script.go has the same types.
struct call { uint64_t number, args[6], accept[2]; int64_t want; };
struct failure { uint32_t step, number; };
struct arguments { uint64_t flags, pidfd, ids[2], exit_signal, others[5], cgroup; };

// call makes a system call without using the C library: the child shares the library's memory with
// the parent.
static inline __attribute__((always_inline)) long call(long n, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
	long result;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	__asm__ volatile("syscall" : "=a"(result) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return result;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = n;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
#else
#error "another architecture"
#endif
}

// play makes the calls of a script. It returns only if one fails.
static void play(const struct call *calls, uint64_t count, struct failure *failed) {
	for (uint64_t i = 0; i < count; i++) {
		const struct call *c = &calls[i];
		long result;
		do result = call(c->number, c->args[0], c->args[1], c->args[2], c->args[3], c->args[4], c->args[5]);
		while (result == -EINTR);
		if (result > 0 && c->want == -2) for (;;) call(SYS_exit_group, 0, 0, 0, 0, 0, 0);
		if (result >= 0 && (c->want < 0 || result == c->want)) continue;
		if (result < 0 && ((uint64_t)-result == c->accept[0] || (uint64_t)-result == c->accept[1])) continue;
		failed->step = i;
		failed->number = result < 0 ? -result : EPIPE; // EPIPE: the maker ended
		return;
	}
}

// become is the child's part of spawn. It needs a stack frame of its own: spawn's is the parent's.
static __attribute__((noinline, noreturn)) void become(const struct call *calls, uint64_t count, struct failure *failed, long report) {
	play(calls, count, failed);
	call(SYS_write, report, (long)failed, sizeof *failed, 0, 0, 0);
	for (;;) call(SYS_exit_group, 253, 0, 0, 0, 0, 0);
}

// spawn makes a process that plays a script. It returns the process id when the process has
// executed a program or ended, or a negative errno. Until then the process may share this process's
// memory and this thread's stack, so no signal handler may run in it: all signals are blocked.
static __attribute__((noinline)) long spawn(struct arguments *arguments, const struct call *calls, uint64_t count, struct failure *failed, long report) {
	uint64_t all = ~0ULL, before = 0;
	long result = call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)&before, sizeof all, 0, 0);
	if (result < 0) return result;
	result = call(SYS_clone3, (long)arguments, sizeof *arguments, 0, 0, 0, 0);
	if (result == 0) become(calls, count, failed, report);
	call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&before, 0, sizeof before, 0, 0);
	return result;
}
*/
import "C"

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// noGroup makes a process start in its parent's cgroups.
const noGroup = -1

// clone makes a process in new namespaces that makes a script's system calls. It returns when the
// process has executed a program or ended. The process writes a failure to report, one of its
// descriptors. In version 2 it starts in the cgroup whose directory is open as group, unless that
// is noGroup.
//
// The process starts with signals blocked, until the script unblocks them, and without this
// process's signal handlers. It shares this process's memory: a copy would cost this process a page
// fault for each page that it writes afterwards.
func clone(flags uint64, group int, s *script, report uintptr) (pid int, err error) {
	args := &C.struct_arguments{flags: C.uint64_t(flags | unix.CLONE_CLEAR_SIGHAND | unix.CLONE_VFORK | unix.CLONE_VM), exit_signal: C.uint64_t(unix.SIGCHLD)}
	if group != noGroup {
		args.flags |= unix.CLONE_INTO_CGROUP
		args.cgroup = C.uint64_t(group)
	}
	failed := &C.struct_failure{}
	calls := (*C.struct_call)(unsafe.Pointer(unsafe.SliceData(s.calls)))
	result := C.spawn(args, calls, C.uint64_t(len(s.calls)), failed, C.long(report))
	runtime.KeepAlive(s)
	if result < 0 {
		return 0, fmt.Errorf("clone the first process: %w", syscall.Errno(-result))
	}
	return int(result), nil
}
