// init is process 1 of a cell, the sandbox of one run. It needs no library: a start costs the kernel's exec and
// a few page faults.
//
// It gets these descriptors: 0 to 2 of the command, 3 a socket to the agent (SOCK_SEQPACKET), 4 a plan, and 5 a
// pipe to the maker. The plan is a memory image that the maker wrote for the address PLAN. It has two lists
// of system calls: those that prepare the cell, and those that make a new process the command. So what
// they do is decided, and tested, in Go (image.go).
//
// init sends each report to the agent and to the maker. It ends, and with it everything in the cell, when the
// agent closes its socket, when no process is left, or DRAIN_MS after the command's end.
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define PLAN 0x600000000000
#define DRAIN_MS 100

enum { AGENT = 3, IMAGE = 4, MAKER = 5 };

// A call is one system call. Its layout is that of struct call in clone.go.
struct call { uint64_t number, args[6], accept[2]; int64_t want; };
struct script { struct call *calls; uint64_t count; };
struct plan { struct script prepare, command; };

// Kinds of reports. image.go has the same numbers.
enum { FAILED_PREPARE = 1, FAILED_COMMAND, PREPARED, STARTED, ENDED };

struct report {
	uint32_t kind;
	uint32_t step, number;         // of a failure: the call, and its errno
	uint32_t status;               // of wait4(2)
	int64_t user, system, resident; // microseconds, and KiB of the largest process
};

// Orders of the agent, one packet each: the first byte is the kind, the second a signal. The command starts at GO,
// so an agent that the cell wasn't handed to has started nothing.
enum { GO = 'g', SIGNAL = 's', KILL = 'k' };

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

static __attribute__((noreturn)) void leave(long code) {
	for (;;) call(SYS_exit_group, code, 0, 0, 0, 0, 0);
}

// play makes the calls of a script, and reports whether all succeeded.
static int play(const struct script *s, struct report *failed) {
	for (uint64_t i = 0; i < s->count; i++) {
		const struct call *c = &s->calls[i];
		long result;
		do result = call(c->number, c->args[0], c->args[1], c->args[2], c->args[3], c->args[4], c->args[5]);
		while (result == -EINTR);
		if (result >= 0 && (c->want < 0 || result == c->want)) continue;
		if (result < 0 && ((uint64_t)-result == c->accept[0] || (uint64_t)-result == c->accept[1])) continue;
		failed->step = i;
		failed->number = result < 0 ? -result : ENOSPC; // a short write
		return 0;
	}
	return 1;
}

// send sends a report, first to the maker: the agent's report may cause the end of this process. Neither receiver can
// block init.
static void send(const struct report *r) {
	call(SYS_write, MAKER, (long)r, sizeof *r, 0, 0, 0);
	call(SYS_sendto, AGENT, (long)r, sizeof *r, 0x4040 /* MSG_DONTWAIT | MSG_NOSIGNAL */, 0, 0);
}

static int64_t now(void) { // in milliseconds
	struct { int64_t seconds, nanoseconds; } t;
	call(SYS_clock_gettime, 1 /* CLOCK_MONOTONIC */, (long)&t, 0, 0, 0, 0);
	return t.seconds * 1000 + t.nanoseconds / 1000000;
}

// start starts the command. It needs a stack frame of its own, because the child shares it until its exec.
static __attribute__((noinline)) long start(const struct script *s, struct report *failed) {
	struct clone_args args = {.flags = CLONE_VM | CLONE_VFORK, .exit_signal = SIGCHLD};
	long pid = call(SYS_clone3, (long)&args, sizeof args, 0, 0, 0, 0);
	if (pid == 0) {
		play(s, failed);
		leave(253);
	}
	return pid;
}

static struct report failed;

// serve reaps, reports and obeys until the cell ends.
static __attribute__((noreturn)) void serve(long command, long children) {
	int64_t deadline = -1; // none before the command's end
	for (;;) {
		struct { int32_t fd; int16_t events, found; } ready[2] = {{AGENT, 1 /* POLLIN */, 0}, {children, 1, 0}};
		struct { int64_t seconds, nanoseconds; } pause = {0, 0}, *timeout = 0;
		if (deadline >= 0) {
			int64_t left = deadline - now();
			if (left <= 0) leave(0);
			pause.nanoseconds = left * 1000000;
			timeout = &pause;
		}
		call(SYS_ppoll, (long)ready, 2, (long)timeout, 0, 0, 0);
		if (ready[0].found) {
			unsigned char order[2] = {0, 0};
			long n = call(SYS_recvfrom, AGENT, (long)order, sizeof order, 0x40 /* MSG_DONTWAIT */, 0, 0);
			if (n == 0 || (n < 0 && n != -EAGAIN && n != -EINTR)) leave(0);
			if (n > 0 && order[0] == KILL) call(SYS_kill, -1, SIGKILL, 0, 0, 0, 0); // all but this process
			if (n == 2 && order[0] == SIGNAL && deadline < 0) call(SYS_kill, -command, order[1], 0, 0, 0, 0);
		}
		if (!ready[1].found) continue;
		unsigned char info[128]; // struct signalfd_siginfo
		call(SYS_read, children, (long)info, sizeof info, 0, 0, 0);
		for (;;) {
			int status = 0;
			struct rusage used;
			long pid = call(SYS_wait4, -1, (long)&status, 1 /* WNOHANG */, (long)&used, 0, 0);
			if (pid == -ECHILD) leave(0);
			if (pid <= 0) break;
			if (pid != command || deadline >= 0) continue;
			struct report r = {
				.kind = ENDED, .status = status, .resident = used.ru_maxrss,
				.user = used.ru_utime.tv_sec * 1000000L + used.ru_utime.tv_usec,
				.system = used.ru_stime.tv_sec * 1000000L + used.ru_stime.tv_usec,
			};
			send(&r);
			deadline = now() + DRAIN_MS;
		}
	}
}

__attribute__((noreturn, used)) void run(void) {
	const struct plan *plan = (const struct plan *)PLAN;
	long size = call(SYS_lseek, IMAGE, 0, 2 /* SEEK_END */, 0, 0, 0);
	long at = call(SYS_mmap, PLAN, size, 3 /* PROT_READ | PROT_WRITE */, 0x100002 /* MAP_PRIVATE | MAP_FIXED_NOREPLACE */, IMAGE, 0);
	if (size < (long)sizeof *plan || at != PLAN) leave(250);
	call(SYS_close, IMAGE, 0, 0, 0, 0, 0);
	if (!play(&plan->prepare, &failed)) {
		failed.kind = FAILED_PREPARE;
		send(&failed);
		leave(251);
	}
	send(&(struct report){.kind = PREPARED});
	unsigned char order = 0;
	long n;
	do n = call(SYS_recvfrom, AGENT, (long)&order, 1, 0, 0, 0);
	while (n == -EINTR);
	if (n != 1 || order != GO) leave(0);
	uint64_t child = 1ULL << (SIGCHLD - 1);
	call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&child, 0, sizeof child, 0, 0);
	long children = call(SYS_signalfd4, -1, (long)&child, sizeof child, 0x80000 /* SFD_CLOEXEC */, 0, 0);
	long command = start(&plan->command, &failed);
	if (children < 0 || command < 0 || failed.number) {
		if (!failed.number) {
			failed.step = UINT32_MAX; // no call of a script
			failed.number = children < 0 ? -children : -command;
		}
		failed.kind = FAILED_COMMAND;
		send(&failed);
		leave(252);
	}
	for (int fd = 0; fd < 3; fd++) call(SYS_close, fd, 0, 0, 0, 0, 0); // or the outputs would never end
	struct report started = {.kind = STARTED};
	send(&started);
	serve(command, children);
}

#if defined(__x86_64__)
__asm__(".globl _start\n_start: and $-16,%rsp\n call run\n");
#else
__asm__(".globl _start\n_start: bl run\n");
#endif

// The compiler may call these.
void *memcpy(void *to, const void *from, size_t n) {
	char *t = to;
	for (const char *f = from; n--;) *t++ = *f++;
	return to;
}

void *memset(void *at, int value, size_t n) {
	for (char *a = at; n--;) *a++ = value;
	return at;
}
