package local

import "testing"

// cloner calls clone3 as a program could, with and without a user namespace, and clone with one.
const cloner = `
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static const char *try(uint64_t flags) {
	uint64_t args[11];
	memset(args, 0, sizeof args);
	args[0] = flags;
	args[4] = SIGCHLD;
	long r = syscall(435, args, sizeof args);
	if (r == 0) _exit(0);
	return r > 0 ? "done" : errno == ENOSYS ? "unknown" : "refused";
}
int main(void) {
	printf("%s %s\n", try(CLONE_NEWUSER), try(0));
}
`

// TestCommandsCannotCallClone3: if the agent starts commands with clone3, they can't call it,
// however they are started.
func TestCommandsCannotCallClone3(t *testing.T) {
	t.Parallel()
	b := running(t)
	id := b.begin(hostEnvironment())
	b.expect(id, "cat >cloner.c <<'END'\n"+cloner+"END\ncc -o cloner cloner.c 2>&1 && ./cloner", "unknown unknown")
	b.expect(id, "setsid -w ./cloner", "unknown unknown")
	follow := b.launch(id, waits) // so that the next is in another group
	b.expect(id, "./cloner", "unknown unknown")
	third := b.launch(id, waits)
	b.expect(id, "./cloner", "unknown unknown") // in the shared one
	b.expect(id, "touch go", "")
	follow()
	third()
}
