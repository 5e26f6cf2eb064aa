package house

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Sandboxes are the cgroups of this run's runners, as the kernel lists them.
type Sandboxes struct{ parent string }

// Sandboxes returns those of the house.
func (h *House) Sandboxes() Sandboxes { return Sandboxes{h.group} }

// dirs returns the directories of a cgroup in every hierarchy. "" is the parent.
func (s Sandboxes) dirs(name string) []string {
	one, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup/*", s.parent, name)) // the pattern is valid
	two, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", s.parent, name))
	return append(one, two...)
}

// Runners returns the ids of runners that have a cgroup now.
func (s Sandboxes) Runners() []string {
	var all []string
	for _, dir := range s.dirs("*") {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			all = append(all, filepath.Base(dir))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// processes returns the processes in and below a runner's cgroups.
func (s Sandboxes) processes(runner string) []int {
	var all []int
	for _, dir := range s.dirs(runner) {
		_ = filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				text, _ := os.ReadFile(filepath.Join(at, "cgroup.procs"))
				for _, field := range strings.Fields(string(text)) {
					if pid, err := strconv.Atoi(field); err == nil && pid > 1 { // 0 means of another namespace
						all = append(all, pid)
					}
				}
			}
			return nil
		})
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Agent returns the first process of a runner's pid namespace; 0 if there is none.
func (s Sandboxes) Agent(runner string) int {
	for _, pid := range s.processes(runner) {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		for line := range strings.Lines(string(status)) {
			if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
				if all := strings.Fields(ids); len(all) > 1 && all[len(all)-1] == "1" {
					return pid
				}
			}
		}
	}
	return 0
}

// kill sends SIGKILL to a process of a runner, as Send does.
func (s Sandboxes) kill(runner string, pid int) bool { return s.Send(runner, pid, unix.SIGKILL) }

// Send signals a process of a runner. A process that reused its id gets no signal.
func (s Sandboxes) Send(runner string, pid int, signal unix.Signal) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil || !strings.Contains(string(groups), ":/"+s.parent+"/"+runner) {
		return false
	}
	return unix.PidfdSendSignal(fd, signal, nil, 0) == nil
}

// KillAgent kills a runner's agent, and so its whole pid namespace.
func (s Sandboxes) KillAgent(runner string) bool {
	pid := s.Agent(runner)
	return pid != 0 && s.kill(runner, pid)
}

// Destroy kills all of a runner's processes and deletes its cgroups, like a careless operator.
func (s Sandboxes) Destroy(runner string) bool {
	hit := false
	for _, pid := range s.processes(runner) {
		hit = s.kill(runner, pid) || hit
	}
	if !hit {
		return false
	}
	for _, dir := range s.dirs(runner) {
		var below []string
		_ = filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				below = append(below, at)
			}
			return nil
		})
		for _, at := range slices.Backward(below) {
			_ = unix.Rmdir(at) // a dying process keeps its cgroup for a moment
		}
	}
	return hit
}

// Helpers counts the programs that make and remove sandboxes now.
func (h *House) Helpers() (creates, removes int) {
	program := filepath.Join(h.data, "local", "bin", "rockpool-sandbox")
	all, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, exe := range all {
		if at, err := os.Readlink(exe); err != nil || at != program {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(exe), "cmdline"))
		switch {
		case strings.HasPrefix(string(line), "rockpool-sandbox\x00create\x00"):
			creates++
		case strings.HasPrefix(string(line), "rockpool-sandbox\x00remove\x00"):
			removes++
		}
	}
	return creates, removes
}
