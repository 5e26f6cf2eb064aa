// Rockpool runs other people's programs in isolated runners. This package is
// the program: its commands, each over the packages that do the work.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"

	"github.com/rockpool/rockpool/cli"
	"github.com/rockpool/rockpool/cli/connection"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/doctor"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/server"
	"github.com/rockpool/rockpool/server/private"
)

const description = `Rockpool runs other people's programs, each in an isolated runner that is warm already.

First start a server, then run something on it:

    rockpool serve
    rockpool run hello.py

Every command has examples in its own help: rockpool COMMAND --help`

type commands struct {
	Serve       serveCommand       `cmd:"" help:"Serve the API, with runners on this machine, which needs root, or on Nomad."`
	Helper      helperCommand      `cmd:"" help:"Make the sandboxes of a server that isn't root; only this is, then."`
	ImageWorker imageWorkerCommand `cmd:"" hidden:""`
	Doctor      doctor.Command     `cmd:"" help:"Find out, by trying, what this machine can isolate, and what to do where it can't."`
	cli.Commands
	Version     versionCommand `cmd:"" help:"Print the version."`
	ShowVersion versionFlag    `name:"version" hidden:"" help:"Print the version."`
}

func main() {
	probePidfds()
	os.Exit(execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// probePidfds makes Go's one probe for pidfds before anything handles signals. The
// probe's child shares our memory and our signal handlers (syscall.doCheckClonePidfd of
// Go 1.26). If Ctrl-C ends that child inside of a handler, we crash with "morestack on
// gsignal".
func probePidfds() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Release()
	}
}

// execute runs one command and returns the program's exit code.
func execute(arguments []string, in io.Reader, out, errs io.Writer) int {
	return cli.Execute(&commands{}, description, arguments, cli.Streams{In: in, Out: out, Err: errs},
		kong.Vars{"version": server.Version()}, kong.Bind(cli.Private{Use: usePrivate}))
}

// A versionFlag is --version, for those who know it from other programs.
type versionFlag bool

// BeforeReset prints the version and ends the program, for kong.
func (versionFlag) BeforeReset(app *kong.Kong, s cli.Streams) error {
	err := versionCommand{}.Run(s)
	app.Exit(0)
	return err
}

type versionCommand struct{}

// Run prints the version.
func (versionCommand) Run(s cli.Streams) error {
	_, err := fmt.Fprintln(s.Out, "rockpool", server.Version())
	return err
}

// usePrivate is cli.Private's: a server that has one of the first environments
// and keeps no runner of it warm, since one is all that is asked for.
func usePrivate(ctx context.Context, environment string, s cli.Streams, use func(ctx context.Context, server *client.Client) error) error {
	inputs, err := privateEnvironments(environment)
	if err != nil {
		return err
	}
	settings, err := config.Private("")
	if err != nil {
		return err
	}
	settings.Doors = []string{config.DoorMCP} // for rockpool mcp
	logger, err := server.Logger(settings)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(s.Err, "rockpool: no server listens at %s: starting one for this run alone\n", connection.DefaultServer)
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(s.Err, "rockpool: "+format+"\n", args...) }
	var used error
	err = private.Run(ctx, settings, logger, say, func(ctx context.Context, srv *server.Server) error {
		if lost := srv.Lost(); lost != "" {
			say("%s", lost)
		}
		for _, input := range inputs {
			if _, _, err := srv.Engine.PutEnvironment(ctx, input); err != nil {
				return err
			}
		}
		reached := srv.Client()
		defer reached.CloseIdle()
		used = use(ctx, reached)
		return nil
	})
	if ctx.Err() != nil && used == nil {
		return cli.ExitError(cli.CodeInterrupted)
	}
	var exit cli.ExitError
	if errors.As(used, &exit) && err != nil {
		_, _ = fmt.Fprintf(s.Err, "rockpool: end the server of this run: %v\n", err)
		return exit
	}
	return errors.Join(used, err)
}

// privateEnvironments returns the one with an id, or with "" all that this machine has programs for. None keeps idle runners.
func privateEnvironments(id string) (inputs []engine.PutEnvironmentInput, err error) {
	var names []string
	for _, s := range server.Starters() {
		if !s.Installed() {
			continue
		}
		names = append(names, string(s.ID))
		if id == "" || id == string(s.ID) {
			input, none := s.Input(), 0
			input.PoolSize = &none
			inputs = append(inputs, input)
		}
	}
	if len(inputs) == 0 {
		return nil, fmt.Errorf("no server listens at %s, and one for this run alone has no environment %q, only %q: start one with `rockpool serve` and put it there", connection.DefaultServer, id, names)
	}
	return inputs, nil
}
