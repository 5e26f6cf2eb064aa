package bed

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/server"
)

// An Engine is a server in the bench's own process, used without the API.
type Engine struct {
	*server.Server
	end   context.CancelFunc
	ended chan error
}

// openEngine starts the server and returns when it has restored its runners. The caller must close
// it.
func openEngine(ctx context.Context, data, cgroups string) (*Engine, error) {
	settings := config.Default()
	settings.Listen, settings.Data, settings.CgroupParent, settings.OnStop = "127.0.0.1:0", data, cgroups, config.StopRemoves
	settings.CPUOvercommit, settings.MemoryOvercommit = CPUOvercommit, MemoryOvercommit
	if err := settings.Check(); err != nil {
		return nil, err
	}
	b := &Engine{Server: server.New(settings, zap.NewNop()), ended: make(chan error, 1)}
	if err := b.Open(ctx); err != nil {
		return nil, err
	}
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	b.end = end
	go func() { b.ended <- b.Server.Run(running) }()
	select {
	case <-b.Engine.Restored():
		return b, nil
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), b.Close())
	}
}

// PutEnvironment puts an environment with a pool of this size.
func (b *Engine) PutEnvironment(ctx context.Context, id string, poolSize int) error {
	_, _, err := b.Engine.Environments.Put(access.With(ctx, access.Server()), request.Environment{ID: runtime.EnvironmentID(id), PoolSize: &poolSize})
	return err
}

// Claim claims a runner.
func (b *Engine) Claim(ctx context.Context, environment string) (string, error) {
	patience := 60
	runner, err := b.Engine.Runners.Claim(access.With(ctx, access.Server()), request.Claim{EnvironmentID: runtime.EnvironmentID(environment), WaitFor: &patience})
	return string(runner.ID), err
}

// Run runs a command to its end. An exit code other than 0 is an error.
func (b *Engine) Run(ctx context.Context, runner string, command ...string) error {
	ctx = access.With(ctx, access.Server())
	x, err := b.Engine.Executions.Start(ctx, request.Start{RunnerID: runtime.RunnerID(runner), Command: command})
	if err == nil {
		x, err = b.Engine.Executions.Get(ctx, x.ID, time.Minute)
	}
	if err == nil && (x.End.Outcome != runtime.OutcomeExited || x.End.ExitCode != 0) {
		err = fmt.Errorf("%q ended with %+v", command, x.End)
	}
	return err
}

// Close stops the server.
func (b *Engine) Close() error {
	b.end()
	return <-b.ended
}

// fillStore stores an environment without runners, so that the first start makes no others, and
// this many finished executions.
func fillStore(ctx context.Context, data string, executions int) (err error) {
	s, err := store.Open(ctx, filepath.Join(data, "rockpool.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	env := runtime.Environment{
		ID: "bench", Revision: 1, RunnerRevision: 1, Image: runtime.DefaultImage, Isolation: runtime.IsolationNamespaces,
		Resources: runtime.DefaultResources(), OutputLimit: runtime.DefaultOutputLimit,
	}
	if err := errors.Join(env.Validate(), s.PutEnvironment(ctx, env)); err != nil {
		return err
	}
	const writers = 64 // concurrent writers share a transaction
	group, ctx := errgroup.WithContext(ctx)
	for w := range writers {
		group.Go(func() error {
			for i := w; i < executions; i += writers {
				x := endedExecution(env)
				if _, _, err := s.AddExecution(ctx, x, []byte{}); err != nil {
					return err
				}
				if _, err := s.FinishExecution(ctx, x, x.Usage.OutputBytes); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// endedExecution returns a finished execution of an environment with new ids.
func endedExecution(env runtime.Environment) runtime.Execution {
	at := time.Now()
	return runtime.Execution{
		ID: runtime.NewExecutionID(), RunnerID: runtime.NewRunnerID(), EnvironmentID: env.ID,
		Command: []string{"python3", "main.py"}, State: runtime.ExecutionFinished, OutputLimit: env.OutputLimit,
		End:        runtime.End{Outcome: runtime.OutcomeExited},
		Usage:      runtime.Usage{Wall: time.Second, User: time.Second, OutputBytes: 1000},
		Timestamps: runtime.Timestamps{QueuedAt: at, StartedAt: at, FirstOutputAt: at, FinishedAt: at},
	}
}
