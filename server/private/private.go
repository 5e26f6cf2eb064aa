// Package private runs a server for one process alone: on a Unix socket that nobody else
// reaches, with a directory of its own, of which nothing stays. What a killed process left
// is removed by the next.
package private

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/server"
)

// Run runs a server with a directory of its own while use runs, and leaves
// nothing of it, or reports with say what it leaves. The context of use ends with ctx,
// and if the server ends before.
func Run(ctx context.Context, c config.Config, logger *zap.Logger, say Sayer, use func(ctx context.Context, server *server.Server) error) (err error) {
	nest, err := makeNest(ctx, c, say)
	if err != nil {
		return err
	}
	clean := false
	defer func() { nest.remove(context.WithoutCancel(ctx), clean, say) }()
	srv := server.New(nest.config, logger)
	srv.Socket = nest.socket()
	if err := srv.Open(ctx); err != nil {
		return err
	}
	serving, end := context.WithCancel(context.WithoutCancel(ctx)) // it ends after use, which has to clean up
	using, endUse := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := srv.Run(serving)
		endUse(err)
		ended <- err
	}()
	defer func() {
		end()
		failed := <-ended
		clean = failed == nil
		err = errors.Join(err, failed)
	}()
	select {
	case <-srv.Engine.Restored():
	case <-using.Done():
		return context.Cause(using)
	}
	return use(using, srv)
}

// A Sayer reports something to the user, in one line.
type Sayer func(format string, args ...any)
