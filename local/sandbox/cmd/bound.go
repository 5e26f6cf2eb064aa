package main

/*
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct setting { const char *file, *value; };

// write_in lets a child join a user namespace and a network namespace and write settings there:
// only a process with a single thread may join a user namespace. The child shares this process's
// memory until it ends, so no signal handler of Go may run in it: all signals are blocked.
static int write_in(int user_namespace, int network, const struct setting *s, int count) {
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int status = 0;
	pid_t child = vfork();
	if (child == 0) {
		if (setns(user_namespace, CLONE_NEWUSER) || setns(network, CLONE_NEWNET)) _exit(errno);
		for (int i = 0; i < count; i++) {
			int fd = open(s[i].file, O_WRONLY | O_CLOEXEC);
			if (fd < 0 && errno == ENOENT) continue;
			if (fd < 0 || write(fd, s[i].value, strlen(s[i].value)) < 0) _exit(errno);
			close(fd);
		}
		_exit(0);
	}
	int failed = child < 0 ? errno : 0;
	while (child > 0 && waitpid(child, &status, 0) < 0)
		if (errno != EINTR) { failed = errno; break; }
	pthread_sigmask(SIG_SETMASK, &before, 0);
	if (failed) return failed;
	return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}
*/
import "C"

import (
	"fmt"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/maker"
	"github.com/rockpool/rockpool/local/sandbox/spec"
)

const (
	// A runner may use an eighth of its memory for the buffers of its sockets, but at least
	// fewestBuffers bytes.
	buffersPart   = 8
	fewestBuffers = 8 << 20

	bytesPerRead = 64 << 10 // average size of a read, to derive the limit of reads from that of bytes
)

// boundUsers limits what the users of a sandbox can take together.
func boundUsers(pid int) error {
	namespace, err := unix.Open(fmt.Sprintf("/proc/%d/ns/user", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(namespace) }()
	network, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(network) }()
	all := make([]C.struct_setting, 0, len(settings))
	for _, s := range settings { // never freed: this process is short-lived
		all = append(all, C.struct_setting{file: C.CString("/proc/sys/" + s.Name), value: C.CString(strconv.Itoa(s.Value))})
	}
	if errno := C.write_in(C.int(namespace), C.int(network), &all[0], C.int(len(all))); errno != 0 {
		return fmt.Errorf("write settings of the sandbox's namespaces: %w", syscall.Errno(errno))
	}
	return nil
}

// settings are written in a sandbox's user and network namespaces. If a kernel has a network
// setting only for the whole machine, it stays as it is.
var settings = []maker.Setting{
	{Name: "user/max_inotify_instances", Value: spec.InotifyInstances},
	{Name: "user/max_inotify_watches", Value: spec.InotifyWatches},
	// Memory of each socket's options, which no cgroup counts. A network namespace has this setting
	// from Linux 6.8 on. Before, the seccomp filter refuses the calls that take most of it.
	{Name: "net/core/optmem_max", Value: 4096},
	// Programs may listen on every port of their own network, such as 80.
	{Name: "net/ipv4/ip_unprivileged_port_start", Value: 0},
	// Few enough that the agent, which inspects TCP sockets up to a limit, sees the others too.
	{Name: "net/ipv4/tcp_max_tw_buckets", Value: 4096},
}

// boundGroups sets the limits of machine-wide resources in a sandbox's cgroups.
func boundGroups(c helper.Config, q *helper.Request, trees cgroup.Hierarchies) error {
	disks, err := cgroup.Disks("/usr", c.Images)
	if err != nil {
		return err
	}
	return trees.Share(c.Group(q.ID), cgroup.Shared{
		Buffers: max(int64(q.Resources.MemoryMiB)<<20/buffersPart, fewestBuffers),
		Disks:   disks, Read: c.DiskRead, Reads: c.DiskRead / bytesPerRead,
	})
}
