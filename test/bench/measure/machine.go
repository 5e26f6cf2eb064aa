package measure

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/test/bench/usage"
)

// A Machine describes where a report was made.
type Machine struct {
	CPUs      int    `json:"cpus"`
	Model     string `json:"model"`
	MemoryMiB int    `json:"memoryMiB"`
	Kernel    string `json:"kernel"`
	Go        string `json:"go"`
}

func (m Machine) String() string {
	return fmt.Sprintf("%d CPUs (%s), %d MiB, Linux %s, %s", m.CPUs, m.Model, m.MemoryMiB, m.Kernel, m.Go)
}

// ThisMachine returns what the kernel reports about this machine.
func ThisMachine() Machine {
	m := Machine{CPUs: runtime.NumCPU(), Go: runtime.Version(), Model: usage.Field("/proc/cpuinfo", "model name")}
	if m.Model == "" {
		m.Model = runtime.GOARCH // ARM kernels don't report it
	}
	if kib, err := strconv.Atoi(strings.TrimSuffix(usage.Field("/proc/meminfo", "MemTotal"), " kB")); err == nil {
		m.MemoryMiB = kib >> 10
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	return m
}
