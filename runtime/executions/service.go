package executions

import (
	"context"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/store"
)

// A Service serves executions to callers. An execution that a caller doesn't see doesn't exist for
// it: the error is EXECUTION_NOT_FOUND. Methods are safe for concurrent use.
type Service struct {
	auth     *audit.Authorizer
	registry *Registry
}

// NewService returns the Service of a registry.
func NewService(auth *audit.Authorizer, registry *Registry) *Service { return &Service{auth, registry} }

// Allow returns an error unless the caller may use an operation that only reads on an execution.
func (s *Service) Allow(ctx context.Context, op access.Operation, id runtime.ExecutionID) error {
	return s.auth.See(ctx, op, s.registry.Object(ctx, id))
}

// Get returns an execution once it has ended, or its current state after wait.
func (s *Service) Get(ctx context.Context, id runtime.ExecutionID, wait time.Duration) (runtime.Execution, error) {
	p, err := s.auth.Allow(ctx, "execution")
	if err != nil {
		return runtime.Execution{}, err
	}
	x, err := s.registry.Get(ctx, id, 0)
	switch {
	case err != nil:
		return x, err
	case !p.SeesExecution(x):
		return runtime.Execution{}, store.NotFound(id)
	case wait == 0 || x.State == runtime.ExecutionFinished:
		return x, nil
	}
	return s.registry.Get(ctx, id, wait)
}

// List returns a page of the executions after an id, of the caller's tenant or of all, oldest or newest
// first, with the number of all that match. It calls charge with the size of each record in bytes, and
// returns charge's error.
func (s *Service) List(ctx context.Context, filter request.Executions, first int, after runtime.ExecutionID, charge func(bytes int) error) (store.ExecutionPage, error) {
	p, err := s.auth.Allow(ctx, "executions")
	if err != nil {
		return store.ExecutionPage{}, err
	}
	if err := request.CheckExecutions(filter); err != nil {
		return store.ExecutionPage{}, err
	}
	filter.Tenant = p.Only()
	page, err := s.registry.Store.Executions(ctx, filter, first, after, charge)
	s.registry.Refresh(page.Executions)
	return page, err
}

// Events returns a reader of an execution's events after a cursor; "" is the beginning. Close it.
func (s *Service) Events(ctx context.Context, id runtime.ExecutionID, after string) (*events.Reader, error) {
	return audit.Do(ctx, s.auth, "executionEvents", s.registry.Object(ctx, id), func() (*events.Reader, error) {
		return s.registry.Events(ctx, id, after)
	})
}

// Usage returns what an execution has used so far. It returns nil if the execution isn't RUNNING, or
// if its agent doesn't answer within a second. See [usage.Agents] for the age of the data. It checks
// nothing: x must come from a call that did.
func (s *Service) Usage(ctx context.Context, x runtime.Execution) *runtime.UsageNow {
	running := s.registry.Session(x.ID)
	if running == nil || x.State != runtime.ExecutionRunning {
		return nil
	}
	used, at := s.registry.Agents.Usage(ctx, x.RunnerID, x.Tenant)
	one, runs := used.Executions[string(x.ID)]
	if !runs {
		return nil
	}
	return &runtime.UsageNow{
		At: at, Wall: one.Wall, User: one.User, System: one.System, OutputBytes: running.Received(),
		Memory: one.Memory, PeakMemory: one.PeakMemory, Processes: one.Processes, PeakProcesses: one.PeakProcesses,
	}
}
