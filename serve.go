package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/sync/errgroup"
)

// stopWithin bounds a graceful stop, which is to take 5 s at most; then the program ends as it is, and the
// next start cleans up.
const stopWithin = 4500 * time.Millisecond

type serveCommand struct {
	Config `embed:""`
}

// Help is what rockpool serve --help says beyond the flags.
func (serveCommand) Help() string {
	return `Serves the GraphQL API at http://ADDRESS/graphql until SIGINT or SIGTERM, which end it within 5 seconds; a second one ends it at once.

A first start makes environments for what it finds on this machine: shell, and where they are installed python, node and c. A line on stdout says when the first runner is ready; everything else is logged to stderr.

Every setting is a flag or the variable named beside it; the flag wins.`
}

// Run serves.
func (c *serveCommand) Run(s streams, selected *kong.Context) error {
	if err := c.Check(); err != nil {
		var wrong *settingError
		if errors.As(err, &wrong) {
			return wrong.at(selected)
		}
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("serving needs root to isolate programs, until rootless runners exist: run it as root, for example with sudo")
	}
	logger, err := c.logger()
	if err != nil {
		return err
	}
	defer func() { _ = logger.Sync() }() // stderr can't always be synced

	ctx, stop := stopOnSignals(context.Background(), s)
	defer stop()
	server := NewServer(c.Config, logger)
	if err := server.Open(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Run(ctx) })
	group.Go(func() error {
		select {
		case <-server.Engine.Restored():
		case <-ctx.Done():
			return nil
		}
		if err := putStarters(ctx, server.Engine); err != nil {
			return fmt.Errorf("make the first environments: %w", err)
		}
		if err := announce(ctx, server.Engine, server.URL(), s.out); err != nil && ctx.Err() == nil {
			return err
		}
		return nil
	})
	return group.Wait()
}

// stopOnSignals returns a context that the first SIGINT or SIGTERM ends. The
// second, or stopWithin after the first, ends the program.
func stopOnSignals(parent context.Context, s streams) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		select {
		case <-signals:
			cancel(errStopping)
		case <-done:
			return
		}
		select {
		case <-signals:
		case <-time.After(stopWithin):
			_, _ = fmt.Fprintln(s.err, "rockpool: stopping took too long; the next start cleans up")
		case <-done:
			return
		}
		os.Exit(codeOurs)
	})
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		group.Wait()
		cancel(nil)
	}
}
