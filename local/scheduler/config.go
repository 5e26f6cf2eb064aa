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
	Workers    int // workers that place runners concurrently, 1 to 64; 0: one per CPU, but 2 to 8
	Collect    Collect

	// Changed is called when the reason that a runner of an environment waits for may have changed.
	// It must not block. It is a hint: read Reason again. nil: no calls.
	Changed func(runtime.EnvironmentID)
}

// Overcommit is the factor by which each of the machine's resources is overcommitted, 0.1 to 1000.
// A runner's limits are ceilings that it rarely reaches. 0 stands for the default; decision 8
// explains the defaults.
type Overcommit struct {
	CPU       float64
	Memory    float64
	Processes float64
	Workspace float64
}

// DefaultOvercommit returns the default factors: 32 runners of the default size fit per GiB of
// memory, and about 250 per core.
func DefaultOvercommit() Overcommit {
	return Overcommit{CPU: 250, Memory: 8, Processes: 8, Workspace: 32}
}

// Collect is how long ended evaluations, allocations and jobs are kept. They take about 5.5 KB of
// memory per ended runner. Each duration is at least 1 s.
type Collect struct {
	Every       time.Duration // interval of collections; 0: 1 minute, or the shortest of those below
	Evaluations time.Duration // since an evaluation ended; 0: 5 minutes
	Runners     time.Duration // since an allocation or a job ended; 0: 5 minutes
}

// check returns config with its defaults, or INVALID_INPUT for the first field that is out of
// range.
func (config Config) check() (Config, error) {
	if config.Logger == nil {
		config.Logger = zap.NewNop()
	}
	if config.Changed == nil {
		config.Changed = func(runtime.EnvironmentID) {}
	}
	if config.Workers == 0 {
		config.Workers = min(max(goruntime.NumCPU(), 2), 8)
	}
	if err := runtime.Between("scheduler.workers", int64(config.Workers), 1, 64, "workers"); err != nil {
		return Config{}, err
	}
	if err := checkMachine(config.Machine); err != nil {
		return Config{}, err
	}
	if err := config.Overcommit.fill(); err != nil {
		return Config{}, err
	}
	if err := config.Collect.fill(); err != nil {
		return Config{}, err
	}
	return config, nil
}

// fill sets defaults, and checks the durations.
func (c *Collect) fill() error {
	c.Evaluations = cmp.Or(c.Evaluations, 5*time.Minute)
	c.Runners = cmp.Or(c.Runners, 5*time.Minute)
	c.Every = cmp.Or(c.Every, min(time.Minute, c.Evaluations, c.Runners))
	for _, age := range []struct {
		field string
		value time.Duration
	}{
		{"scheduler.collect.evaluations", c.Evaluations},
		{"scheduler.collect.runners", c.Runners},
		{"scheduler.collect.every", c.Every},
	} {
		if age.value < time.Second {
			return runtime.Invalid(age.field, "must be at least 1s, not %v", age.value)
		}
	}
	return nil
}

// fill sets defaults, and checks the factors.
func (o *Overcommit) fill() error {
	standard := DefaultOvercommit()
	for _, factor := range []struct {
		field    string
		value    *float64
		standard float64
	}{
		{"scheduler.overcommit.cpu", &o.CPU, standard.CPU},
		{"scheduler.overcommit.memory", &o.Memory, standard.Memory},
		{"scheduler.overcommit.processes", &o.Processes, standard.Processes},
		{"scheduler.overcommit.workspace", &o.Workspace, standard.Workspace},
	} {
		if *factor.value == 0 {
			*factor.value = factor.standard
		}
		if !(*factor.value >= 0.1 && *factor.value <= 1000) { // NaN too
			return runtime.Invalid(factor.field, "must be 0.1 to 1000, not %g", *factor.value)
		}
	}
	return nil
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

func checkMachine(machine runtime.Resources) error {
	return checkResources("scheduler.machine", machine)
}

// checkResources returns INVALID_INPUT for the first amount that is out of range. field is the
// prefix of its name.
func checkResources(field string, r runtime.Resources) error {
	for i, amount := range vector(r) {
		if err := runtime.Between(field+"."+dimensions[i].field, int64(amount), 1, 1<<40, dimensions[i].unit); err != nil {
			return err
		}
	}
	return nil
}
