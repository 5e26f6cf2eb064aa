package nomadtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// sweep removes everything of the Nomad whose files are in dir, after its agent has ended:
// processes, mounts, cgroups and files. Tasks and their executors outlive a killed agent.
func sweep(dir string) error {
	if !strings.HasPrefix(filepath.Base(dir), "rockpool-nomad-") {
		return fmt.Errorf("%s isn't the directory of a Nomad", dir)
	}
	// Read before the files are removed: allocations have the names of their cgroups.
	own := nomadLeftovers{dir: dir, allocations: append(names(filepath.Join(dir, "client/alloc")), names(filepath.Join(dir, "second/alloc"))...)}
	err := own.killAll()
	own.unmount()
	own.removeGroups()
	return errors.Join(err, os.RemoveAll(dir))
}

// names returns the entries of a directory that are as long as an allocation's id. It is empty if
// there is no directory.
func names(dir string) []string {
	entries, _ := os.ReadDir(dir)
	var all []string
	for _, e := range entries {
		if len(e.Name()) == len("00000000-0000-0000-0000-000000000000") {
			all = append(all, e.Name())
		}
	}
	return all
}

// nomadLeftovers recognises what belongs to a Nomad.
type nomadLeftovers struct {
	dir         string
	allocations []string
}

// killAll kills Nomad's processes until there are none. Processes that they start meanwhile are
// found in the next round.
func (o nomadLeftovers) killAll() error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var left []int
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		if left = o.processes(); len(left) == 0 {
			return nil
		}
		for _, pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	return fmt.Errorf("kill processes: these are left: %v", left)
}

// processes returns the ids of Nomad's processes, except this one.
func (o nomadLeftovers) processes() []int {
	entries, _ := os.ReadDir("/proc")
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && pid > 1 && pid != os.Getpid() && o.owns(filepath.Join("/proc", e.Name())) {
			found = append(found, pid)
		}
	}
	return found
}

// owns reports whether a process belongs to this Nomad. It is in a cgroup of one of its allocations
// or containers. Or it is a helper of Nomad or Docker with this Nomad's directory in its arguments
// or variables.
func (o nomadLeftovers) owns(proc string) bool {
	if stat, err := os.ReadFile(filepath.Join(proc, "stat")); err != nil || strings.Contains(string(stat), ") Z ") {
		return false // a zombie is dead; its parent reaps it
	}
	groups, _ := os.ReadFile(filepath.Join(proc, "cgroup"))
	for line := range strings.Lines(string(groups)) {
		// A process in a deleted cgroup has exited, and becomes a zombie soon.
		if o.names(line) && !strings.HasSuffix(line, " (deleted)\n") {
			return true
		}
	}
	return helper(proc) && strings.Contains(words(proc), o.dir)
}

// helper reports whether a process runs a program of Nomad or Docker.
func helper(proc string) bool {
	program, _ := os.Readlink(filepath.Join(proc, "exe"))
	program = filepath.Base(program)
	return strings.HasPrefix(program, "nomad") || strings.HasPrefix(program, "containerd") || program == "dockerd"
}

// words returns a process's arguments and variables. Nomad's logmon has its directory only among
// the latter.
func words(proc string) string {
	args, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
	variables, _ := os.ReadFile(filepath.Join(proc, "environ"))
	return string(args) + string(variables)
}

// names reports whether a cgroup's path has this Nomad's directory or one of its allocations.
func (o nomadLeftovers) names(text string) bool {
	return strings.Contains(text, "/"+filepath.Base(o.dir)+"/") || slices.ContainsFunc(o.allocations, func(id string) bool { return strings.Contains(text, id) })
}

// unmount unmounts everything below its directory, the innermost first.
func (o nomadLeftovers) unmount() {
	table, _ := os.ReadFile("/proc/self/mountinfo")
	var mounts []string
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], o.dir+"/") {
			mounts = append(mounts, fields[4])
		}
	}
	for _, at := range slices.Backward(mounts) {
		_ = unix.Unmount(at, unix.MNT_DETACH)
	}
}

// removeGroups removes the cgroups of its allocations and containers. It doesn't touch others'
// cgroups, even empty ones.
func (o nomadLeftovers) removeGroups() {
	var groups []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && o.names(path+"/") {
			groups = append(groups, path)
		}
		return nil
	})
	for _, path := range slices.Backward(groups) {
		_ = unix.Rmdir(path)
	}
}
