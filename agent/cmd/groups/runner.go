package groups

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

// A RunnerGroup is the group of a whole runner including its agent, for example a container's. It is used
// if commands have no groups of their own. Its methods are safe for concurrent use.
type RunnerGroup struct {
	trees map[string]int // directories by controller, as in Counters
	kept  *keptFiles
}

// watched are the controllers that count for a whole runner.
var watched = map[string]bool{"pids": true, "memory": true, "blkio": true, unified: true}

// FindRunnerGroup returns the group of this process, with the controllers that are mounted here. It
// returns nil if there is none, or if it is the whole machine's group.
func FindRunnerGroup() *RunnerGroup {
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	own, _ := os.ReadFile("/proc/self/cgroup")
	w := &RunnerGroup{trees: map[string]int{}, kept: newKeptFiles()}
	for _, at := range ownGroupPaths(string(mounts), string(own)) {
		tree, err := unix.Open(at.path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err == nil {
			w.trees[at.controller] = tree
		}
	}
	if limits(w.trees, "pids") {
		delete(w.trees, unified) // the group has no controllers, so it counts nothing
		return w
	}
	if limits(w.trees, unified) {
		return w
	}
	return nil
}

// limits reports whether the tree's group can limit processes. The root group, which is the
// machine's, can't.
func limits(trees map[string]int, name string) bool {
	tree, ok := trees[name]
	return ok && unix.Faccessat(tree, "pids.max", unix.R_OK, 0) == nil
}

// A groupPath is the path at which a group is mounted.
type groupPath struct{ controller, path string }

// ownGroupPaths returns where a process's groups are mounted, from the texts of its
// /proc/PID/mountinfo and /proc/PID/cgroup.
func ownGroupPaths(mounts, own string) (found []groupPath) {
	groups := map[string]string{} // by controller
	for line := range strings.Lines(own) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		if fields[1] == "" {
			groups[unified] = fields[2]
		}
		for controller := range strings.SplitSeq(fields[1], ",") {
			groups[controller] = fields[2]
		}
	}
	for line := range strings.Lines(mounts) {
		mount, kind, ok := strings.Cut(strings.TrimSpace(line), " - ")
		fields, types := strings.Fields(mount), strings.Fields(kind)
		if !ok || len(fields) < 5 || len(types) < 3 {
			continue
		}
		controllers := []string{unified}
		switch types[0] {
		case "cgroup":
			controllers = strings.Split(types[2], ",")
		case "cgroup2":
		default:
			continue
		}
		for _, controller := range controllers {
			if path, ok := below(groups[controller], fields[3], fields[4]); ok && watched[controller] {
				found = append(found, groupPath{controller, path})
			}
		}
	}
	return found
}

// below returns the path of a group. The mount point shows the part of the tree from root down. It
// returns false for a group outside of that.
func below(group, root, mountPoint string) (path string, ok bool) {
	if group == "" {
		return "", false
	}
	rest, ok := strings.CutPrefix(group, strings.TrimSuffix(root, "/"))
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return mountPoint + rest, true
}

// Now adds the runner's usage since it was made and what it holds, including the agent. It reports
// whether the kernel counts processor time.
func (w *RunnerGroup) Now(now *agent.Used) (countsCPU bool) {
	all := &Counters{trees: w.trees, name: ".", kept: w.kept}
	all.total(now)
	return all.CountsCPU()
}

// Begin returns counters that start now. Call it before a command starts.
func (w *RunnerGroup) Begin() *Counters {
	c := &Counters{trees: w.trees, name: ".", kept: w.kept, ofRunner: true}
	c.devices = c.file("blkio", "io.stat") >= 0
	c.around = c.number("pids", "pids.current", "")
	c.Begin()
	return c
}
