package scheduler

import (
	"cmp"
	goruntime "runtime"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// Config is the machine that a Scheduler places runners on, and how it works.
type Config struct {
	Logger     *zap.Logger
	Machine    runtime.Resources // the machine's resources; all above 0
	Overcommit Overcommit
	Workers    int // workers that place runners concurrently; 0 means one per CPU, but 2 to 8
	Collect    Collect

	// Placed is called with each new allocation, once, by a worker. Placed's callee may report to
	// Update before Placed returns. [Scheduler.Pause] waits until Placed has returned.
	Placed func(runtime.Allocation)
	// Changed is called when the reason that a runner of an environment waits for may have changed.
	// It is a hint: call Waiting again. It must not block.
	Changed func(runtime.EnvironmentID)
}

// Overcommit is the factor by which each of the machine's resources is overcommitted. A runner's
// limits are ceilings that it rarely reaches. 0 stands for the default. With the defaults, 32 runners
// of the default size fit per GiB of memory, and about 250 per core; decision 8 explains them.
type Overcommit struct {
	CPU       float64 // default: 250
	Memory    float64 // default: 8
	Processes float64 // default: 8
	Workspace float64 // default: 32
}

// Collect is how long ended evaluations, allocations and jobs are kept.
type Collect struct {
	Every       time.Duration // interval of collections; 0 means 1 minute, or the shortest of those below
	Evaluations time.Duration // since an evaluation ended; 0 means 5 minutes
	Runners     time.Duration // since an allocation or a job ended; 0 means 5 minutes
}

func (config Config) withDefaults() Config {
	config.Workers = cmp.Or(config.Workers, min(max(goruntime.NumCPU(), 2), 8))
	o := config.Overcommit
	config.Overcommit = Overcommit{cmp.Or(o.CPU, 250), cmp.Or(o.Memory, 8), cmp.Or(o.Processes, 8), cmp.Or(o.Workspace, 32)}
	c := &config.Collect
	c.Evaluations, c.Runners = cmp.Or(c.Evaluations, 5*time.Minute), cmp.Or(c.Runners, 5*time.Minute)
	c.Every = cmp.Or(c.Every, min(time.Minute, c.Evaluations, c.Runners))
	return config
}

// of returns the capacity of a machine: its resources times the factors.
func (o Overcommit) of(machine runtime.Resources) runtime.Resources {
	times := func(n int, factor float64) int { return int(float64(n) * factor) }
	return runtime.Resources{
		CPUMHz:       times(machine.CPUMHz, o.CPU),
		MemoryMiB:    times(machine.MemoryMiB, o.Memory),
		Processes:    times(machine.Processes, o.Processes),
		WorkspaceMiB: times(machine.WorkspaceMiB, o.Workspace),
	}
}
