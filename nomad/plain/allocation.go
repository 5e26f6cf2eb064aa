package plain

import (
	"context"
	"maps"

	"github.com/hashicorp/nomad/api"
)

// An Allocation is an Exec: Nomad's own, in one task of an allocation.
type Allocation struct {
	Client *api.Client
	ID     string // the allocation's
	Task   string
	// Node is the id of the allocation's node, which is asked directly; where it
	// can't be reached that costs a second (api.ClientConnTimeout) every time. "":
	// all goes through the server that Client knows.
	Node string
	// Query has the namespace and the region. It is copied.
	Query api.QueryOptions
}

// Exec implements [Exec]. The api's own goroutines may call the writers for a
// moment longer.
func (a Allocation) Exec(ctx context.Context, c Command) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	query := a.Query
	query.Params = maps.Clone(a.Query.Params) // the api writes into it
	if query.Params == nil {
		query.Params = map[string]string{}
	}
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
	return a.Client.Allocations().Exec(ctx, &api.Allocation{ID: a.ID, NodeID: a.Node}, a.Task,
		c.Terminal, c.Argv, c.Stdin, c.Stdout, c.Stderr, sizes, query.WithContext(ctx))
}
