package runners

import (
	"context"
	"strconv"
	"sync"

	"github.com/rockpool/rockpool/local/scheduler"
	"github.com/rockpool/rockpool/runtime"
)

// placeAll runs a scheduler that places this many runners on a machine with capacity for all,
// without starting them. It returns when the scheduler reported each as running.
func placeAll(ctx context.Context, runners int) error {
	const plenty = 1 << 38
	s, err := scheduler.New(scheduler.Config{Machine: runtime.Resources{CPUMHz: plenty, MemoryMiB: plenty, Processes: plenty, WorkspaceMiB: plenty}})
	if err == nil {
		err = s.Restore(nil, nil)
	}
	if err != nil {
		return err
	}
	s.Restored()
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	parts.Go(func() { _ = s.Run(ctx) }) // always nil
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
	for placed, after := 0, uint64(0); placed < runners; {
		orders, next, err := s.Orders(ctx, after)
		if err != nil {
			return err
		}
		for _, a := range orders {
			if err := s.Update(a.ID, runtime.AllocationRunning, ""); err != nil {
				return err
			}
		}
		placed, after = placed+len(orders), next
	}
	return nil
}
