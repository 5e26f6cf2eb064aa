package scheduler

import (
	"cmp"
	goruntime "runtime"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// Config says what a Scheduler has to give, and how it works.
type Config struct {
	Logger     *zap.Logger
	Machine    runtime.Resources // what the machine has; all above 0
	Overcommit Overcommit
	Workers    int // that place runners, at once; 0: one per CPU, at least 2 and at most 8
	Collect    Collect

	// Changed is called when what a runner of an environment waits for may have
	// changed. It must not block, and says only: look again. nil: nobody asks.
	Changed func(runtime.EnvironmentID)
}

// Overcommit says how often each thing that the machine has is promised. The
// limits of a runner are ceilings that it rarely reaches; decision 8 says why
// the defaults, which stand in for a 0, are what they are.
type Overcommit struct {
	CPU       float64
	Memory    float64
	Processes float64
	Workspace float64
}

// DefaultOvercommit lets a machine keep 32 runners of the default size per GiB,
// and about 250 per core.
func DefaultOvercommit() Overcommit {
	return Overcommit{CPU: 250, Memory: 8, Processes: 8, Workspace: 32}
}

// Collect says how long what has ended stays to be looked at: some 5.5 KB of
// each runner that came and went.
type Collect struct {
	Every       time.Duration // between two collections; 0: a minute, or the shortest of those below
	Evaluations time.Duration // since an evaluation ended; 0: five minutes
	Runners     time.Duration // since an allocation or a job ended; 0: five minutes
}

// check returns config with its defaults, or INVALID_INPUT with the first
// field that is out of its range.
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

// of returns what can be promised of a machine.
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

func checkResources(field string, r runtime.Resources) error {
	for i, amount := range vector(r) {
		if err := runtime.Between(field+"."+dimensions[i].field, int64(amount), 1, 1<<40, dimensions[i].unit); err != nil {
			return err
		}
	}
	return nil
}
