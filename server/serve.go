package server

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"

	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/local/host"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/language"
	"github.com/rockpool/rockpool/runtime/request"
)

// openSilence is how long a start may take before Serve prints what it does.
const openSilence = 2 * time.Second

// Serve opens and runs a server with checked settings until ctx ends or a part fails. It returns
// nil if ctx ended. It limits the process's memory, notifies systemd, and prints a line to out when
// the server is ready.
func Serve(ctx context.Context, c config.Config, logger *zap.Logger, out io.Writer) error {
	limitMemory(logger)
	s := New(c, logger)
	s.First = FirstEnvironments
	slow := time.AfterFunc(openSilence, func() {
		_, _ = fmt.Fprintln(out, "rockpool is starting: it takes over runners and tests what this machine can isolate")
	})
	defer slow.Stop()
	if err := s.Open(ctx); err != nil {
		return unlessStopping(err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.Run(ctx) })
	group.Go(func() error {
		<-ctx.Done()
		return notify("STOPPING=1")
	})
	group.Go(func() error {
		newReturner().run(ctx, returnEvery)
		return nil
	})
	group.Go(func() error {
		select {
		case <-s.Engine.Restored():
		case <-ctx.Done():
			return nil
		}
		slow.Stop()
		if err := notify("READY=1\nSTATUS=serving at " + s.URL()); err != nil {
			logger.Warn("notifying systemd that the server is ready failed", zap.Error(err))
		}
		if err := announce(ctx, s.Engine, s.URL(), out); err != nil && ctx.Err() == nil {
			return err
		}
		return nil
	})
	err := group.Wait()
	if err == nil {
		logger.Info("the server has stopped; " + leftRunners(c.OnStop))
	}
	return err
}

// leftRunners says whether the runners of a stopped server still run.
func leftRunners(onStop string) string {
	if onStop == config.StopRemoves {
		return "it removed its runners"
	}
	return "its runners keep running: the next start takes over idle and claimed ones"
}

// Logger returns the logger for the settings.
func Logger(c config.Config) (*zap.Logger, error) {
	level, err := zap.ParseAtomicLevel(c.LogLevel)
	if err != nil {
		return nil, err
	}
	made := zap.NewProductionConfig()
	made.Level = level
	made.DisableStacktrace = true
	made.Sampling = nil // users search the log for an error's id: no line may be missing
	made.EncoderConfig.EncodeTime = zapcore.ISO8601TimeEncoder
	if made.Encoding = c.LogFormat; made.Encoding == "console" {
		made.DisableCaller = true
	}
	return made.Build()
}

// A Starter is an environment that the first start creates if its program is installed.
type Starter struct {
	ID        runtime.EnvironmentID
	Program   string
	memoryMiB int
	processes int
}

// Starters returns the environments for common languages. A compiler and node need more memory and
// processes than a script: node alone starts ten threads and reserves much memory.
func Starters() []Starter {
	return []Starter{
		{ID: "shell", Program: "/bin/sh", memoryMiB: 256, processes: 128},
		{ID: "python", Program: "/usr/bin/python3", memoryMiB: 256, processes: 128},
		{ID: "node", Program: "/usr/bin/node", memoryMiB: 512, processes: 256},
		{ID: "c", Program: "/usr/bin/cc", memoryMiB: 512, processes: 128},
	}
}

// FirstEnvironments returns the environments of the starters whose program is installed.
func FirstEnvironments() ([]runtime.Environment, error) {
	var all []runtime.Environment
	for _, s := range Starters() {
		if !s.Installed() {
			continue
		}
		env, err := s.Input().New()
		if err != nil {
			return nil, err
		}
		all = append(all, env)
	}
	return all, nil
}

// Installed reports whether the program is installed on this machine.
func (s Starter) Installed() bool {
	_, err := os.Stat(s.Program)
	return err == nil
}

// Input returns the input that creates the environment unless it exists.
func (s Starter) Input() request.Environment {
	onlyCreate := 0
	// Revision 0 only creates: an existing environment stays.
	return request.Environment{ID: s.ID, IfRevision: &onlyCreate, MemoryMiB: &s.memoryMiB, Processes: &s.processes}
}

// FromRecipe returns the input that creates an environment for a language unless it exists. It
// returns false if one of the language's programs isn't installed on this machine.
func FromRecipe(id runtime.EnvironmentID, r language.Recipe) (request.Environment, bool) {
	for _, command := range [][]string{r.Build, r.Run, r.Version} {
		if len(command) > 0 && !strings.Contains(command[0], "{") && host.FindProgram(command[0]) == "" {
			return request.Environment{}, false
		}
	}
	positive := func(limit int) *int {
		if limit > 0 {
			return &limit
		}
		return nil
	}
	onlyCreate, l := 0, r.Limits
	return request.Environment{
		ID: id, IfRevision: &onlyCreate, MemoryMiB: positive(l.MemoryMiB), Processes: positive(l.Processes),
		WorkspaceMiB: positive(l.WorkspaceMiB), DefaultTimeLimit: positive(l.Seconds),
	}, true
}
