package plain

import (
	"context"

	"github.com/hashicorp/nomad/api"
)

// An Allocation is an Exec: Nomad's own, in one task of an allocation.
type Allocation struct {
	Client *api.Client // knows the namespace and the region
	ID     string      // the allocation's
	Task   string
}

// Exec implements [Exec]. The api's own goroutines may call the writers for a
// moment longer.
func (a Allocation) Exec(ctx context.Context, c Command) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	query := &api.QueryOptions{Params: map[string]string{}} // the api writes into it
	sizes := make(chan api.TerminalSize)
	if c.Resize != nil {
		go func() { // ends with ctx
			for {
				select {
				case size := <-c.Resize:
					select {
					case sizes <- api.TerminalSize{Height: size.Rows, Width: size.Columns}:
					case <-ctx.Done():
						return
					}
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	return a.Client.Allocations().Exec(ctx, &api.Allocation{ID: a.ID}, a.Task,
		c.Terminal, c.Argv, c.Stdin, c.Stdout, c.Stderr, sizes, query.WithContext(ctx))
}
