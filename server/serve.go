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

// openSilence is how long a start may take before Serve prints what it does.
const openSilence = 2 * time.Second

// Serve opens and runs a server with checked settings until ctx ends or a part fails. It returns
// nil if ctx ended. It limits the process's memory, notifies systemd, and prints a line to out when
// the server is ready.
func Serve(ctx context.Context, c config.Config, logger *zap.Logger, out io.Writer) error {
	limitMemory(logger)
	s := New(c, logger)
	s.First = FirstEnvironments
	slow := time.AfterFunc(openSilence, func() {
		_, _ = fmt.Fprintln(out, "rockpool is starting: it takes over runners and tests what this machine can isolate")
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
			logger.Warn("notifying systemd that the server is ready failed", zap.Error(err))
		}
		if err := announce(ctx, s.Engine, s.URL(), out); err != nil && ctx.Err() == nil {
			return err
		}
		return nil
	})
	err := group.Wait()
	if err == nil {
		logger.Info("the server has stopped; " + leftRunners(c.OnStop))
	}
	return err
}

// leftRunners says whether the runners of a stopped server still run.
func leftRunners(onStop string) string {
	if onStop == config.StopRemoves {
		return "it removed its runners"
	}
	return "its runners keep running: the next start takes over idle and claimed ones"
}

// Logger returns the logger for the settings.
func Logger(c config.Config) (*zap.Logger, error) {
	level, err := zap.ParseAtomicLevel(c.LogLevel)
	if err != nil {
		return nil, err
	}
	made := zap.NewProductionConfig()
	made.Level = level
	made.DisableStacktrace = true
	made.Sampling = nil // users search the log for an error's id: no line may be missing
	made.EncoderConfig.EncodeTime = zapcore.ISO8601TimeEncoder
	if made.Encoding = c.LogFormat; made.Encoding == "console" {
		made.DisableCaller = true
	}
	return made.Build()
}
