package sandboxtest

import "strings"

// Within reports whether a process, of which this is its /proc/PID/cgroup, is in
// a group beneath one, and not past its end: the kernel tells of such a process
// at the root of trees of version 1, and in a group that is deleted in one of
// version 2. Its state wouldn't do: the first process of a PID namespace sleeps,
// past its end, until those of its namespace are reaped.
func Within(groups, parent string) bool {
	for line := range strings.Lines(groups) {
		if strings.Contains(line, "/"+strings.Trim(parent, "/")+"/") && !strings.HasSuffix(line, " (deleted)\n") {
			return true
		}
	}
	return false
}
