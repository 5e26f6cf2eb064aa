// Package private runs a temporary server for one process: on a Unix socket that only its user can
// reach, and with its own data directory. It removes everything at the end. If the process is
// killed, the next private server cleans up.
package private

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/server"
)

// Run runs a private server while use runs, and then removes it and its runners. It reports with
// say what it can't remove. The context of use ends with ctx, or when the server fails. Run returns
// the error of use, of the server, or both.
func Run(ctx context.Context, c config.Config, logger *zap.Logger, say Sayer, use func(ctx context.Context, server *server.Server) error) (err error) {
	directory, err := newDirectory(ctx, c, say)
	if err != nil {
		return err
	}
	clean := false
	defer func() { directory.remove(context.WithoutCancel(ctx), clean, say) }()
	srv := server.New(directory.config, logger)
	srv.Socket = directory.socket()
	if err := srv.Open(ctx); err != nil {
		return err
	}
	serving, end := context.WithCancel(context.WithoutCancel(ctx)) // it must end after use, which cleans up on the server
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

// A Sayer prints a line for the user.
type Sayer func(format string, args ...any)
