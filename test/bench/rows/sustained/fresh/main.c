// fresh makes a sandbox for each start of a program and removes it again, with system calls alone.
// The sandbox has namespaces of all kinds, id maps, a tmpfs as root with a read-only /usr, /proc,
// /dev and two tmpfs, and cgroups.
//
//     fresh run GROUP N PROGRAM [ARGUMENT...]     print how many microseconds each of N starts took, to its removal
//     fresh remove GROUP N                        print how many the removal alone took
//
// GROUP is a cgroup that it makes, and removes at the end.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NAMESPACES (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)

static const char *hierarchies[] = {"cpu/", "cpuacct/", "memory/", "devices/", "freezer/", "blkio/", "pids/", NULL};
static const char *unified[] = {"", NULL};
static const char **groups = hierarchies;
static const char *group; // above each sandbox's group

static volatile sig_atomic_t stopped; // by SIGTERM: a sandbox that exists is removed first

static void stop(int signal)
{
	(void)signal;
	stopped = 1;
}

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(99);
}

static int put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	int ok = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	close(fd);
	return ok;
}

static char *at(const char *hierarchy, const char *rest)
{
	static char path[512];
	snprintf(path, sizeof path, "/sys/fs/cgroup/%s%s%s", hierarchy, group, rest);
	return path;
}

static void make_groups(void)
{
	for (const char **h = groups; *h; h++)
		mkdir(at(*h, "/one"), 0755);
	put(at(groups == unified ? "" : "pids/", "/one/pids.max"), "64");
	put(groups == unified ? at("", "/one/memory.max") : at("memory/", "/one/memory.limit_in_bytes"), "536870912");
}

static void remove_groups(void)
{
	for (const char **h = groups; *h; h++)
		rmdir(at(*h, "/one"));
}

static void bind(const char *from, const char *to)
{
	close(open(to, O_CREAT | O_WRONLY, 0644));
	must(!mount(from, to, NULL, MS_BIND, NULL), from);
}

static void isolate(void)
{
	must(!mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL), "private mounts");
	must(!mount("root", "/mnt", "tmpfs", MS_NOSUID | MS_NODEV, "size=1m"), "root");
	must(!chdir("/mnt"), "chdir");
	const char *directories[] = {"usr", "proc", "dev", "tmp", "workspace", NULL};
	for (const char **d = directories; *d; d++)
		must(!mkdir(*d, 0755), *d);
	must(!symlink("usr/bin", "bin") && !symlink("usr/lib", "lib") && !symlink("usr/lib64", "lib64"), "links");
	must(!mount("/usr", "usr", NULL, MS_BIND | MS_REC, NULL), "/usr");
	must(!mount("", "usr", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL), "/usr read-only");
	must(!mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL), "/proc");
	must(!mount("dev", "dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "size=64k"), "/dev");
	bind("/dev/null", "dev/null");
	bind("/dev/zero", "dev/zero");
	bind("/dev/urandom", "dev/urandom");
	must(!mount("tmp", "tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=64m"), "/tmp");
	must(!mount("workspace", "workspace", "tmpfs", MS_NOSUID | MS_NODEV, "size=256m"), "/workspace");
	must(!syscall(SYS_pivot_root, ".", ".") && !umount2(".", MNT_DETACH) && !chdir("/workspace"), "pivot_root");
}

static long microseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000L + now.tv_nsec / 1000;
}

// sandbox returns the first process, once it is in its groups and has its ids. program is the file
// that it executes, or -1.
static pid_t sandbox(int program, char **argv)
{
	int go[2], ready[2];
	char path[64], pid_text[16], byte;
	must(!pipe2(go, O_CLOEXEC) && !pipe2(ready, O_CLOEXEC), "pipe");
	make_groups();
	pid_t pid = syscall(SYS_clone, NAMESPACES | SIGCHLD, 0, 0, 0, 0);
	must(pid >= 0, "clone");
	if (pid == 0) {
		signal(SIGPIPE, SIG_DFL);
		signal(SIGTERM, SIG_DFL);
		must(read(go[0], &byte, 1) == 1, "wait for the groups");
		must(!setresgid(0, 0, 0) && !setresuid(0, 0, 0), "become root inside");
		must(!prctl(PR_SET_PDEATHSIG, SIGKILL), "die with the parent"); // after setting the ids, which would clear it
		isolate();
		must(write(ready[1], "r", 1) == 1, "ready");
		if (program < 0)
			for (;;)
				pause();
		char *environment[] = {"PATH=/usr/bin:/bin", NULL};
		must(dup2(open("/dev/null", O_RDWR), 1) == 1, "stdout");
		syscall(SYS_execveat, program, "", argv, environment, AT_EMPTY_PATH);
		must(0, argv[0]);
	}
	snprintf(pid_text, sizeof pid_text, "%d", pid);
	for (const char **h = groups; *h; h++)
		must(put(at(*h, "/one/cgroup.procs"), pid_text), "cgroup.procs");
	snprintf(path, sizeof path, "/proc/%d/uid_map", pid);
	must(put(path, "0 100000 65536"), "uid_map");
	snprintf(path, sizeof path, "/proc/%d/gid_map", pid);
	must(put(path, "0 100000 65536"), "gid_map");
	must(write(go[1], "g", 1) == 1, "go");
	close(ready[1]);
	must(read(ready[0], &byte, 1) == 1, "the sandbox"); // the child printed the reason
	close(go[0]), close(go[1]), close(ready[0]);
	return pid;
}

int main(int argc, char **argv)
{
	must(argc >= 4, "usage");
	int removal = !strcmp(argv[1], "remove"), program = -1, status;
	group = argv[2];
	if (!access("/sys/fs/cgroup/cgroup.controllers", F_OK))
		groups = unified;
	if (!removal)
		must(argc > 4 && (program = open(argv[4], O_PATH)) >= 0, "program"); // stays open: the interpreter of a script reads it
	for (const char **h = groups; *h; h++)
		mkdir(at(*h, ""), 0755);
	signal(SIGPIPE, SIG_IGN); // the reader may have left; the groups must still be removed
	signal(SIGTERM, stop);
	for (int i = atoi(argv[3]); i > 0 && !stopped; i--) {
		long began = microseconds();
		pid_t pid = sandbox(program, argv + 4);
		if (removal) {
			began = microseconds();
			kill(pid, SIGKILL);
		}
		must(waitpid(pid, &status, 0) == pid, "wait");
		remove_groups();
		printf("%ld\n", microseconds() - began);
		if (!removal && status != 0) {
			fprintf(stderr, "%s ended with status %d\n", argv[4], status);
			return 1;
		}
	}
	for (const char **h = groups; *h; h++)
		rmdir(at(*h, ""));
	return 0;
}
