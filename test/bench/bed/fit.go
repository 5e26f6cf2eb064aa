package bed

import (
	"context"
	"fmt"

	"github.com/rockpool/rockpool/test/bench/measure"
)

// CPUOvercommit and MemoryOvercommit are the factors of the bench's servers on this machine. They
// are the defaults, set explicitly so that the capacity is known.
const (
	CPUOvercommit    = 250
	MemoryOvercommit = 8
)

// room is the CPU and memory that runners need, or the overcommitted capacity that they share.
type room struct{ CPUMHz, MemoryMiB int64 }

// lacks says in numbers why this many runners of a size don't fit. It returns "" if they fit.
func (free room) lacks(runners int, each room) string {
	n := int64(runners)
	switch {
	case n*each.MemoryMiB > free.MemoryMiB:
		return fmt.Sprintf("%d runners of %d MiB need %d MiB, and runners can be promised %d MiB here", n, each.MemoryMiB, n*each.MemoryMiB, free.MemoryMiB)
	case n*each.CPUMHz > free.CPUMHz:
		return fmt.Sprintf("%d runners of %d MHz need %d MHz, and runners can be promised %d MHz here", n, each.CPUMHz, n*each.CPUMHz, free.CPUMHz)
	}
	return ""
}

// Fits returns measure.ErrNoFit if this many runners exceed the server's capacity. It puts the
// environment, with an empty pool.
func (s *Server) Fits(ctx context.Context, runners int) error {
	if err := s.Keep(ctx, 0); err != nil {
		return err
	}
	var out struct {
		Cluster struct {
			Capacity struct {
				room
				CPUMHzUsed, MemoryMiBUsed int64
			}
		}
		Environment struct{ Resources room }
	}
	const query = `query($id: ID!) { cluster { capacity { cpuMHz memoryMiB cpuMHzUsed memoryMiBUsed } } environment(id: $id) { resources { cpuMHz memoryMiB } } }`
	if err := s.Do(ctx, query, map[string]any{"id": Environment}, &out); err != nil {
		return err
	}
	c := out.Cluster.Capacity
	free := room{CPUMHz: c.CPUMHz, MemoryMiB: c.MemoryMiB}
	if s.overcommitted {
		free = room{CPUMHz: c.CPUMHz * CPUOvercommit, MemoryMiB: c.MemoryMiB * MemoryOvercommit}
	}
	free.CPUMHz -= c.CPUMHzUsed
	free.MemoryMiB -= c.MemoryMiBUsed
	if why := free.lacks(runners, out.Environment.Resources); why != "" {
		return fmt.Errorf("%w: %s", measure.ErrNoFit, why)
	}
	return nil
}
