package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/host"
	"github.com/rockpool/rockpool/local/runner"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// measureEvery is the interval of measurements: memory can be added to a machine, or its limit of
// processes raised, while runners wait for that.
const measureEvery = 30 * time.Second

func (c *Cluster) measureAtIntervals(ctx context.Context) {
	for backoff.Sleep(ctx, measureEvery) == nil {
		c.measure()
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

// Check tests whether this machine can isolate programs: it makes one sandbox, starts the agent in
// it and removes it. The sandbox appears in no list. The error names everything that is missing,
// one per line, with what to do. STORAGE_FULL: only disk space is missing, so nothing new can be
// created.
func (c *Cluster) Check(ctx context.Context) error {
	if err := errors.Join(c.host.Missing()...); err != nil {
		return err
	}
	err := c.tryRunner(ctx)
	if host.IsFull(err) {
		return runtime.Wrap(runtime.CodeStorageFull, err, "no runner can start because the server's disk is full: free some space in its data directory")
	}
	if err != nil {
		return errors.Join(append([]error{fmt.Errorf("a sandbox can't be made on this machine: %w", err)}, c.host.Suspects()...)...)
	}
	return nil
}

func (c *Cluster) tryRunner(ctx context.Context) error {
	env := runtime.Environment{
		ID: "check", Revision: 1, RunnerRevision: 1,
		Image: runtime.DefaultImage, Isolation: runtime.IsolationNamespaces, Resources: runtime.DefaultResources(),
	}
	r := runtime.Runner{ID: runtime.NewRunnerID(), Environment: env, State: runtime.RunnerStarting}
	// The entry isn't added to the cluster's entries, so no list shows it.
	return c.newEntry(r, runtime.PriorityRefill, runner.Record{}).runner.Try(ctx)
}
