package local

import (
	"context"
	"fmt"
	"os"
	goruntime "runtime"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime"
)

// measureEvery is the interval of measurements: memory can be added to a machine, or its limit of
// processes raised, while runners wait for that.
const measureEvery = 30 * time.Second

func (c *Cluster) measureAtIntervals(ctx context.Context) {
	tick := time.NewTicker(measureEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.measure()
		case <-ctx.Done():
			return
		}
	}
}

func (c *Cluster) measure() {
	machine, err := measure(c.host.Machine.CoreMHz)
	if err == nil && machine != c.scheduler.Node().Machine {
		err = c.scheduler.SetMachine(machine)
	}
	if err != nil {
		c.config.Logger.Warn("the machine's resources couldn't be measured", zap.Error(err))
	}
}

// measure returns this machine's resources, given the clock of one core in MHz. Workspaces are in
// memory, so their limit is the memory's.
func measure(coreMHz int) (runtime.Resources, error) {
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
func processLimit(paths ...string) (lowest int, err error) {
	for _, path := range paths {
		limit := 0
		text, err := os.ReadFile(path)
		if err == nil {
			_, err = fmt.Sscan(string(text), &limit)
		}
		if err != nil {
			return 0, err
		}
		if lowest == 0 || limit < lowest {
			lowest = limit
		}
	}
	return lowest, nil
}
