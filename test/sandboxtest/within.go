package sandboxtest

import "strings"

// Within reports whether a live process is in a cgroup below parent. groups is its
// /proc/PID/cgroup. The kernel lists a process that has exited at the root of hierarchies of
// version 1, and in a deleted cgroup in the one of version 2. Its state would be misleading: the
// first process of a PID namespace still sleeps after its exit, until the others of its namespace
// are reaped.
func Within(groups, parent string) bool {
	for line := range strings.Lines(groups) {
		if strings.Contains(line, "/"+strings.Trim(parent, "/")+"/") && !strings.HasSuffix(line, " (deleted)\n") {
			return true
		}
	}
	return false
}
