package execution

import (
	"github.com/rockpool/rockpool/runtime"
)

// AtLeast returns u, with nothing in it below what was used before; what is held now is u's. The
// processor time in all is u's as far as its two parts allow that.
func AtLeast(u, before runtime.Usage) runtime.Usage {
	all := max(u.User+u.System, before.User+before.System)
	u.User = max(u.User, before.User)
	u.System = max(before.System, all-u.User)
	u.Wall, u.OutputBytes = max(u.Wall, before.Wall), max(u.OutputBytes, before.OutputBytes)
	u.PeakMemory = max(u.PeakMemory, before.PeakMemory, u.Memory)
	u.PeakProcesses = max(u.PeakProcesses, before.PeakProcesses, u.Processes)
	u.BytesRead, u.BytesWritten = atLeast(u.BytesRead, before.BytesRead), atLeast(u.BytesWritten, before.BytesWritten)
	return u
}

func atLeast(n, before *int64) *int64 {
	if n == nil || before != nil && *before > *n {
		return before
	}
	return n
}
