package server

import (
	"context"
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"

	"github.com/rockpool/rockpool/config"
)

// openSilence is how long a start may take before the user hears what it does.
const openSilence = 2 * time.Second

// Serve opens and runs a server with checked settings until ctx ends or a part fails, and
// returns nil if ctx ended. It bounds the process's memory, notifies systemd, and writes to
// out when the server is ready.
func Serve(ctx context.Context, c config.Config, logger *zap.Logger, out io.Writer) error {
	limitMemory(logger)
	s := New(c, logger)
	s.First = FirstEnvironments
	slow := time.AfterFunc(openSilence, func() {
		_, _ = fmt.Fprintln(out, "rockpool is starting: it looks at what the last server left, and tries what this machine can isolate")
	})
	defer slow.Stop()
	if err := s.Open(ctx); err != nil {
		return unlessStopping(err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.Run(ctx) })
	group.Go(func() error {
		<-ctx.Done()
		return notify("STOPPING=1")
	})
	group.Go(func() error {
		newReturner().run(ctx, returnEvery)
		return nil
	})
	group.Go(func() error {
		select {
		case <-s.Engine.Restored():
		case <-ctx.Done():
			return nil
		}
		slow.Stop()
		if err := notify("READY=1\nSTATUS=serving at " + s.URL()); err != nil {
			logger.Warn("systemd can't be notified that the server is ready", zap.Error(err))
		}
		if err := announce(ctx, s.Engine, s.URL(), out); err != nil && ctx.Err() == nil {
			return err
		}
		return nil
	})
	return group.Wait()
}

// Logger returns the logger that settings describe.
func Logger(c config.Config) (*zap.Logger, error) {
	level, err := zap.ParseAtomicLevel(c.LogLevel)
	if err != nil {
		return nil, err
	}
	made := zap.NewProductionConfig()
	made.Level = level
	made.DisableStacktrace = true
	made.Sampling = nil // an error's id must be found
	made.EncoderConfig.EncodeTime = zapcore.ISO8601TimeEncoder
	if made.Encoding = c.LogFormat; made.Encoding == "console" {
		made.DisableCaller = true
	}
	return made.Build()
}
