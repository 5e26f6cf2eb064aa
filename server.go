package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/cli"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/server"
)

type serveCommand struct {
	config.Config `embed:""`
	File          string      `name:"config" env:"ROCKPOOL_CONFIG" complete:"file" placeholder:"FILE" help:"Read settings from this YAML file. ($$XDG_CONFIG_HOME/rockpool/config.yaml, else /etc/rockpool/config.yaml, where there is one; $$${env})"`
	EndWithStdin  bool        `hidden:""` // for a program whose server must end with it
	settings      config.File // that was read
}

// Help is what rockpool serve --help says beyond the flags.
func (serveCommand) Help() string {
	return `Serves the GraphQL API at http://ADDRESS/graphql until SIGINT or SIGTERM, which end it within --stop-within; a second one ends it at once.

Runners outlive the server, however it ends, unless it is stopped with --on-stop remove: the next start on the same data takes them over, idle and claimed ones as they were. To end them all, start the server with --on-stop remove and stop it.

With --cluster nomad they are jobs of a Nomad cluster; docs/guides/nomad.md shows how.

A first start makes environments for what it finds on this machine: shell, and where they are installed python, node and c (none on Nomad). A line on stdout says when the first runner is ready; everything else is logged to stderr.

Every setting is a flag, or the variable named beside it, or a key of the settings file with the flag's name; a flag wins over a variable, and that over the file. docs/config.example.yaml has them all.

    rockpool serve
    rockpool serve --listen 127.0.0.1:9000 --data /srv/rockpool
    rockpool serve --config rockpool.yaml
    rockpool serve --listen :8080 --token-file token --allowed-hosts pool.example.org
    rockpool serve --cluster nomad --nomad-address http://127.0.0.1:4646 --advertise-url http://127.0.0.1:8080

Exit codes:
    0    it was asked to end
    125  it could not start, or failed, or a setting is out of its range; stderr says why
    2    the command line or the settings file can't be understood`
}

// BeforeResolve reads the settings file; kong calls it.
func (c *serveCommand) BeforeResolve(parsed *kong.Context) error {
	serve := parsed.Selected()
	named := ""
	for _, flag := range serve.Flags {
		if flag.Name == "config" {
			named, _ = parsed.FlagValue(flag).(string)
		}
	}
	var err error
	if c.settings, err = config.ReadFile(named, serve.Flags); err != nil {
		return err
	}
	parsed.AddResolver(c.settings)
	return nil
}

// Run serves until a signal.
func (c *serveCommand) Run(s cli.Streams, selected *kong.Context) error {
	if err := c.Check(); err != nil {
		var wrong *config.Error
		if errors.As(err, &wrong) {
			return wrong.At(selected, c.settings)
		}
		return err
	}
	logger, err := server.Logger(c.Config)
	if err != nil {
		return err
	}
	defer func() { _ = logger.Sync() }() // stderr can't always be synced

	if c.settings.Path != "" {
		logger.Info("settings were read", zap.String("file", c.settings.Path), zap.Int("settings", c.settings.Len()))
	}

	ctx, stop := stopOnSignals(context.Background(), s, c.StopWithin, leftover(c.OnStop))
	defer stop()
	if c.EndWithStdin {
		go func() { // never waited for: a read from stdin can't be cancelled
			_, _ = io.Copy(io.Discard, s.In)
			_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		}()
	}
	return server.Serve(ctx, c.Config, logger, s.Out)
}

// stopOnSignals returns a context that the first SIGINT or SIGTERM ends. A second signal, or the
// time within after the first, ends the program, which then prints left. If within is 0, the first
// signal ends the program immediately, and nothing is stopped. The returned function ends the
// watch, and waits for its goroutine.
func stopOnSignals(parent context.Context, s cli.Streams, within time.Duration, left string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		select {
		case <-signals:
			if within > 0 { // with 0 nothing is stopped
				cancel(server.ErrStopping)
			}
		case <-done:
			return
		}
		select {
		case <-signals:
			_, _ = fmt.Fprintln(s.Err, "rockpool: a second signal ended the server immediately; "+left)
		case <-time.After(within):
			why := "stopping took too long"
			if within == 0 {
				why = "ended immediately because of --stop-within 0s"
			}
			_, _ = fmt.Fprintf(s.Err, "rockpool: %s; %s\n", why, left)
		case <-done:
			return
		}
		os.Exit(cli.CodeOurs)
	})
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		group.Wait()
		cancel(nil)
	}
}

// leftover says what happens to runners when the server ends before it has stopped.
func leftover(onStop string) string {
	if onStop == config.StopRemoves {
		return "runners that it hasn't removed keep running. To remove them, start the server with --on-stop remove again, and stop it"
	}
	return "the next start takes over its runners"
}
