// Command rockpool runs other people's programs in isolated runners. This package wires the
// commands to the packages that do the work.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/rockpool/rockpool/cli"
	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/doctor"
	"github.com/rockpool/rockpool/image"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/language"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/similar"
	"github.com/rockpool/rockpool/server"
	"github.com/rockpool/rockpool/server/private"
)

// description is the long text of rockpool --help.
const description = `Rockpool runs other people's programs, each in an isolated runner that is already warm.

Start a server, then run a program on it:

    rockpool serve
    rockpool run hello.py

Flags come after the command. Commands use the server at http://127.0.0.1:8080, or the one in --server or
ROCKPOOL_SERVER. If a server requires tokens, put yours into ROCKPOOL_TOKEN or into the file of --token-file.

The help of each command has examples.`

// commands are the program's commands, as kong reads them.
type commands struct {
	Serve       serveCommand       `cmd:"" help:"Serve the API, with runners on this machine (as root) or on Nomad."`
	Helper      helperCommand      `cmd:"" help:"Make sandboxes for a server without root. Only the helper needs root."`
	ImageWorker imageWorkerCommand `cmd:"" hidden:""`
	Heir        heirCommand        `cmd:"" hidden:""`
	Doctor      doctor.Command     `cmd:"" help:"Test what this machine can isolate, and print what to fix."`
	Image       image.Commands     `cmd:"" help:"Build images with languages from Debian's packages, and list images."`
	cli.Commands
	Version     versionCommand `cmd:"" help:"Print the version."`
	ShowVersion versionFlag    `name:"version" hidden:"" help:"Print the version."`
}

func main() {
	probePidfds()
	os.Exit(execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// probePidfds triggers Go's single probe for pidfds before anything handles signals. The probe's
// child shares this process's memory and signal handlers (syscall.doCheckClonePidfd of Go 1.26). If
// Ctrl-C ended that child inside a handler, this process would crash with "morestack on gsignal".
func probePidfds() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Release()
	}
}

// execute runs one command, and returns the program's exit code.
func execute(arguments []string, in io.Reader, out, errs io.Writer) int {
	return cli.Execute(&commands{}, description, arguments, command.Streams{In: in, Out: out, Err: errs},
		kong.Vars{"version": server.Version()}, kong.Bind(cli.Private{Use: usePrivate}))
}

// A versionFlag is --version, in addition to the command version.
type versionFlag bool

// BeforeReset prints the version and ends the program; kong calls it.
func (versionFlag) BeforeReset(app *kong.Kong, s command.Streams) error {
	err := versionCommand{}.Run(s)
	app.Exit(0)
	return err
}

// A versionCommand is the command version.
type versionCommand struct{}

func (versionCommand) Run(s command.Streams) error {
	_, err := fmt.Fprintln(s.Out, "rockpool", server.Version())
	return err
}

// A heirCommand cleans up after a process with a private server that was killed.
type heirCommand struct {
	Parent int `arg:""`
}

// Run waits for the end of the process.
func (c heirCommand) Run(s command.Streams) error {
	settings, err := config.Private("")
	if err != nil {
		return err
	}
	return private.Inherit(context.Background(), settings, s.In, c.Parent)
}

// usePrivate implements cli.Private: it runs use with a server of its own that has the requested
// environment. The server keeps no warm runners, because one runner is enough.
func usePrivate(ctx context.Context, environment, file string, s command.Streams, use func(ctx context.Context, server *client.Client) error) error {
	settings, err := config.Private("")
	if err != nil {
		return err
	}
	inputs, err := privateEnvironments(runtime.EnvironmentID(environment), file, settings.Recipes)
	if err != nil {
		return err
	}
	settings.Compat = []string{config.CompatMCP} // for rockpool mcp
	logger, err := server.Logger(settings)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(s.Err, "rockpool: no server listens at %s: starting a temporary one\n", command.DefaultServer)
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(s.Err, "rockpool: "+format+"\n", args...) }
	program, err := os.Executable()
	if err != nil {
		return err
	}
	heir, err := private.StartHeir(exec.Command(program, "heir", strconv.Itoa(os.Getpid())))
	if err != nil {
		return fmt.Errorf("start the process that cleans up if this one is killed: %w", err)
	}
	defer heir.Dismiss()
	// The error of use is kept apart: its exit code counts more than a failure to stop the server.
	var used error
	err = private.Run(ctx, settings, logger, say, func(ctx context.Context, srv *server.Server) error {
		for _, lost := range srv.Limitations() {
			say("%s", lost)
		}
		for _, input := range inputs {
			if _, _, err := srv.Engine.Environments.Put(access.With(ctx, access.Server()), input); err != nil {
				return err
			}
		}
		_ = srv.MakeCaches(ctx, func(language string) { // the log has its error
			say("making a cache for %s, the first time only (Go's takes about a minute of processor time)", language)
		})
		reached := srv.Client()
		defer reached.CloseIdle()
		used = use(ctx, reached)
		return nil
	})
	if ctx.Err() != nil && used == nil {
		return command.ExitError(command.CodeInterrupted)
	}
	if exit, ok := errors.AsType[command.ExitError](used); ok && err != nil {
		_, _ = fmt.Fprintf(s.Err, "rockpool: stop the temporary server: %v\n", err)
		return exit
	}
	return errors.Join(used, err)
}

// privateEnvironments returns the environment with an id. With "" it returns the first environments
// whose programs are installed, and one for the file's language if none of those serves it. None of
// them keeps idle runners.
func privateEnvironments(id runtime.EnvironmentID, file string, recipes *language.Set) (inputs []request.Environment, err error) {
	var names []runtime.EnvironmentID
	for _, s := range server.Starters() {
		if !s.Installed() {
			continue
		}
		names = append(names, s.ID)
		if id == "" || id == s.ID {
			inputs = append(inputs, s.Input())
		}
	}
	if input, ok := fromRecipe(id, file, recipes, names); ok {
		inputs = append(inputs, input)
	}
	for i := range inputs {
		inputs[i].PoolSize = new(0)
	}
	switch {
	case len(inputs) > 0:
		return inputs, nil
	case id == "":
		return nil, fmt.Errorf("no server listens at %s, and this machine lacks the programs for a temporary one: start a server with `rockpool serve`", command.DefaultServer)
	}
	return nil, unknownOnPrivate(string(id), names, recipes)
}

// unknownOnPrivate returns the error about an environment that a temporary server can't have. It
// names the starters, and the first environment of each other language that is installed.
func unknownOnPrivate(id string, starters []runtime.EnvironmentID, recipes *language.Set) error {
	var names []string
	for _, s := range starters {
		names = append(names, string(s))
	}
	for _, r := range recipes.All() {
		if len(r.Environments) == 0 || slices.ContainsFunc(r.Environments, func(e runtime.EnvironmentID) bool { return slices.Contains(names, string(e)) }) {
			continue
		}
		if _, ok := server.FromRecipe(r.Environments[0], r); ok {
			names = append(names, string(r.Environments[0]))
		}
	}
	question := similar.Question(id, names)
	if question != "" {
		question = " " + question
	}
	return fmt.Errorf("no server listens at %s, and a temporary one has no environment %q, only %s.%s For other environments start a server with `rockpool serve`, then use `rockpool env put`",
		command.DefaultServer, id, strings.Join(names, ", "), strings.Replace(question, " did", " Did", 1))
}

// fromRecipe returns the environment with an id, or with "" the preferred one for a file's
// language, unless an existing one serves it.
func fromRecipe(id runtime.EnvironmentID, file string, recipes *language.Set, there []runtime.EnvironmentID) (request.Environment, bool) {
	recipe, known := recipes.ByFile(file)
	wanted := recipe.Environments
	if id != "" {
		recipe, known = recipes.ByEnvironment(id)
		wanted = []runtime.EnvironmentID{id}
	}
	if !known || len(wanted) == 0 || slices.ContainsFunc(wanted, func(w runtime.EnvironmentID) bool { return slices.Contains(there, w) }) {
		return request.Environment{}, false
	}
	return server.FromRecipe(wanted[0], recipe)
}
