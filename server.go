package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/server"
)

// A serveCommand is the command serve, with its flags.
type serveCommand struct {
	config.Config `embed:""`
	File          string      `name:"config" env:"ROCKPOOL_CONFIG" complete:"file" placeholder:"FILE" help:"YAML file with settings. ($$XDG_CONFIG_HOME/rockpool/config.yaml, else /etc/rockpool/config.yaml, if one exists; $$${env})"`
	EndWithStdin  bool        `hidden:""` // for a program whose server must end with it
	settings      config.File // that was read
}

// BeforeResolve reads the settings file; kong calls it.
func (c *serveCommand) BeforeResolve(parsed *kong.Context) error {
	serve := parsed.Selected()
	// The flag --config must be known before kong resolves the others, which the file can set.
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
func (c *serveCommand) Run(s command.Streams, selected *kong.Context) error {
	if err := c.Check(); err != nil {
		if wrong, ok := errors.AsType[*config.Error](err); ok {
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

	ctx, stop := stopOnSignals(context.Background(), s, c.StopWithin, command.SignalsApart, leftover(c.OnStop))
	defer stop()
	if c.EndWithStdin {
		go func() { // never waited for: a read from stdin can't be cancelled
			_, _ = io.Copy(io.Discard, s.In)
			_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		}()
	}
	return server.Serve(ctx, c.Config, logger, s.Out)
}

// stopOnSignals returns a context that the first SIGINT, SIGTERM or SIGHUP ends. A second signal at
// least apart later, or the time within after the first, ends the program, which then prints left. If
// within is 0, the first signal ends the program immediately, and nothing is stopped. A service of systemd
// has no terminal that could close, and ignores SIGHUP. A log that nobody reads doesn't end the program.
// The returned function ends the watch, and waits for its goroutine.
func stopOnSignals(parent context.Context, s command.Streams, within, apart time.Duration, left string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	// Notify drops a signal if the channel is full. Programs would inherit signal.Ignore.
	signals, ignored := make(chan os.Signal, 2), make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	signal.Notify(ignored, syscall.SIGPIPE)
	if stops := command.StopSignals(); isService() {
		signal.Notify(ignored, syscall.SIGHUP)
	} else if len(stops) > 0 {
		signal.Notify(signals, stops...)
	}
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
		first, late, why := time.Now(), time.After(within), ""
		for why == "" {
			select {
			case <-signals:
				if time.Since(first) >= apart {
					why = "a second signal ended the server immediately"
				}
			case <-late:
				if why = "stopping took too long"; within == 0 {
					why = "ended immediately because of --stop-within 0s"
				}
			case <-done:
				return
			}
		}
		_, _ = fmt.Fprintf(s.Err, "rockpool: %s; %s\n", why, left)
		os.Exit(command.CodeOurs)
	})
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		group.Wait()
		cancel(nil)
	}
}

// isService reports whether systemd started this process. A terminal's programs may inherit INVOCATION_ID from
// the terminal's own service, and only services of Type=notify have NOTIFY_SOCKET.
func isService() bool {
	return os.Getenv("NOTIFY_SOCKET") != "" || os.Getenv("SYSTEMD_EXEC_PID") == strconv.Itoa(os.Getpid())
}

// leftover says what happens to runners when the server ends before it has stopped.
func leftover(onStop string) string {
	if onStop == config.StopRemoves {
		return "runners that it hasn't removed keep running. To remove them, start the server again with --on-stop remove, and stop it"
	}
	return "the next start takes over its runners"
}
