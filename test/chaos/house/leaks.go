package house

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/rockpool/rockpool/test/chaos/ledger"
)

// Leaks records what is left of a house's runners after its last server has removed them.
func (h *House) Leaks() {
	all := h.Sandboxes()
	for _, runner := range all.Runners() {
		h.Ledger.Wrong(ledger.LeakedCgroups, 1, "%v", all.dirs(runner))
	}
	for _, dir := range all.dirs("") {
		h.Ledger.Wrong(ledger.LeakedCgroups, 1, "%s", dir)
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, h.data) {
			h.Ledger.Wrong(ledger.LeakedMounts, 1, "%s", strings.TrimSpace(line))
		}
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range processes {
		if what := belongs(dir, h.group, h.data); what != "" {
			h.Ledger.Wrong(ledger.LeakedProcesses, 1, "%s: %s", dir, what)
		}
	}
	for sub, kept := range map[string]int{"runners": 0, "state": 0, "roots": 1} { // the next server removes the last one's root
		left, _ := filepath.Glob(filepath.Join(h.data, "local", sub, "*"))
		if len(left) > kept {
			h.Ledger.Wrong(ledger.LeakedRest, int64(len(left)-kept), "%v", left)
		}
	}
	ranges, _ := filepath.Glob("/run/rockpool/uids/*")
	for _, path := range ranges {
		if holder, err := os.Readlink(path); err == nil && strings.HasPrefix(holder, h.data+"/") {
			h.Ledger.Wrong(ledger.LeakedRest, 1, "%s", path)
		}
	}
}

// belongs says how a process belongs to a cgroup or a data directory; "" if it doesn't. A zombie
// counts as dead.
func belongs(dir, group, data string) string {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil || strings.Contains(string(stat), ") Z ") {
		return ""
	}
	groups, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
	for line := range strings.Lines(string(groups)) {
		// The kernel deletes a cgroup once all its processes have exited. The first process of a PID
		// namespace may not be a zombie yet at that time.
		if strings.Contains(line, "/"+group+"/") && !strings.HasSuffix(line, " (deleted)\n") {
			return "in " + group
		}
	}
	for _, link := range []string{"exe", "cwd", "root"} {
		if at, err := os.Readlink(filepath.Join(dir, link)); err == nil && strings.HasPrefix(at, data+"/") {
			return link + " " + at
		}
	}
	return ""
}
