package graph

import (
	"context"
	"errors"
	"io"

	"github.com/99designs/gqlgen/graphql/handler/transport"

	"github.com/rockpool/rockpool/graph/model"
	"github.com/rockpool/rockpool/runtime/engine"
)

// eventSource is what follow needs of engine.Events.
type eventSource interface {
	Next(ctx context.Context) (engine.Event, error)
	Close() error
}

// follow hands the events on until there are none, or ctx ends. The channel
// holds none back: a watcher that reads slowly costs one event of memory, and
// the rest waits in the log.
func (r *resolver) follow(ctx context.Context, source eventSource) <-chan model.ExecutionEvent {
	out := make(chan model.ExecutionEvent)
	go func() {
		defer close(out)
		defer source.Close()
		for {
			event, err := source.Next(ctx)
			if err != nil {
				if !errors.Is(err, io.EOF) && ctx.Err() == nil {
					transport.AddSubscriptionError(ctx, r.present(ctx, err))
				}
				return
			}
			select {
			case out <- model.NewExecutionEvent(event):
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}
