package placing

import (
	"fmt"
	"os"
	goruntime "runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime"
)

// Measure returns this machine's resources, given the clock of one core in MHz. Workspaces are in
// memory, so their limit is the memory's.
func Measure(coreMHz int) (runtime.Resources, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return runtime.Resources{}, fmt.Errorf("read the size of the memory: %w", err)
	}
	memory := int(int64(info.Totalram) * int64(info.Unit) >> 20)
	processes, err := processLimit("/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max")
	if err != nil {
		return runtime.Resources{}, fmt.Errorf("read the limit of processes: %w", err)
	}
	return runtime.Resources{
		CPUMHz:       goruntime.NumCPU() * coreMHz,
		MemoryMiB:    memory,
		Processes:    processes,
		WorkspaceMiB: memory,
	}, nil
}

// processLimit returns the lowest of the kernel's limits in the files.
func processLimit(paths ...string) (int, error) {
	lowest := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return 0, err
		}
		limit, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return 0, err
		}
		if lowest == 0 || limit < lowest {
			lowest = limit
		}
	}
	return lowest, nil
}
