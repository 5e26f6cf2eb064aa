package runners

import (
	"context"
	"strconv"
	"sync"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/local/scheduler"
	"github.com/rockpool/rockpool/runtime"
)

// placeAll runs a scheduler that places this many runners on a machine with capacity for all,
// without starting them. It returns when the scheduler reported each as running.
func placeAll(ctx context.Context, runners int) error {
	const plenty = 1 << 38
	placed := make(chan runtime.RunnerID, runners)
	s, err := scheduler.New(scheduler.Config{
		Machine: runtime.Resources{CPUMHz: plenty, MemoryMiB: plenty, Processes: plenty, WorkspaceMiB: plenty},
		Logger:  zap.NewNop(),
		Placed:  func(a runtime.Allocation) { placed <- a.RunnerID },
		Changed: func(runtime.EnvironmentID) {},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	parts.Go(func() { s.Run(ctx) })
	const environments = 20
	for i := range runners {
		err := s.Register(scheduler.Job{
			ID: runtime.NewRunnerID(), Environment: runtime.EnvironmentID(strconv.Itoa(i % environments)),
			Resources: runtime.DefaultResources(), Priority: runtime.PriorityRefill,
		})
		if err != nil {
			return err
		}
	}
	for range runners {
		select {
		case id := <-placed:
			s.Update(id, runtime.AllocationRunning, "")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
