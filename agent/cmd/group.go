package main

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/groups"
)

// limitOwnGroup mounts the group of this process's task, limits its processes, and returns it. It
// returns nil if the group can't be mounted. The limit works in version 1 of cgroups; in version 2
// only the maker of a group can set it. The mounts are below /tmp, which the mount namespace covers
// afterwards.
func limitOwnGroup(processes int) *groups.RunnerGroup {
	const dir, hidden = "/tmp", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if unix.Mount("tmpfs", dir, "tmpfs", hidden, "size=64k,mode=700") != nil {
		return nil
	}
	for _, tree := range []struct{ name, kind, options string }{
		{"pids", "cgroup", "pids"}, {"memory", "cgroup", "memory"}, {"blkio", "cgroup", "blkio"}, {"unified", "cgroup2", ""},
	} {
		at := dir + "/" + tree.name
		if os.Mkdir(at, 0o700) == nil {
			_ = unix.Mount(tree.kind, at, tree.kind, hidden, tree.options) // one of the versions always fails
		}
	}
	_ = os.WriteFile(dir+"/pids/pids.max", []byte(strconv.Itoa(processes)), 0)
	return groups.FindRunnerGroup()
}
