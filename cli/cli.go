// Package cli has the commands that use a server: for people, and for scripts.
// They know nothing but its API (package client), and can be repeated safely
// where a connection broke.
//
// A command is a struct that kong fills, with a method Run. What it prints for
// people is free to change; what it prints with --json has the API's names and
// doesn't.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/alecthomas/kong"

	"github.com/rockpool/rockpool/cli/output"
)

// Commands are those of this package, for kong.
type Commands struct {
	Run        runCommand        `cmd:"" help:"Run a program on a server, and exit with its code."`
	Env        envCommands       `cmd:"" help:"List, show, put and delete environments: what runners are made from."`
	Runner     runnerCommands    `cmd:"" help:"List, claim, enter and release runners, and copy files."`
	Exec       execCommands      `cmd:"" help:"List, follow and cancel executions: what runs or ran in runners."`
	Top        topCommand        `cmd:"" help:"Show what runs, and what it uses, once a second."`
	Token      tokenCommands     `cmd:"" help:"Make, list and revoke tokens, and make grants: what callers show."`
	Tenant     tenantCommands    `cmd:"" help:"List, put and delete tenants, and their quotas."`
	Ticket     ticketCommands    `cmd:"" help:"Show, watch and cancel tickets: claims that wait for a runner."`
	Audit      auditCommand      `cmd:"" help:"Print the audit log: who did what to which object."`
	Whoami     whoamiCommand     `cmd:"" help:"Show how the server knows you."`
	Drain      drainCommand      `cmd:"" help:"Let a server run empty before maintenance, or end that."`
	Completion completionCommand `cmd:"" help:"Print what makes bash or zsh complete rockpool's command lines."`
	Complete   completeCommand   `cmd:"" name:"__complete" hidden:""`
}

// Streams are a command's ends.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// An ExitError ends the program with a code; what there was to say is said.
type ExitError int

func (e ExitError) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// Execute runs the command of a grammar that arguments name, and returns the
// program's exit code.
func Execute(grammar any, description string, arguments []string, s Streams, options ...kong.Option) int {
	arguments, program := splitProgram(arguments)
	exit := -1
	options = append([]kong.Option{
		kong.Name("rockpool"),
		kong.Description(description),
		kong.Writers(s.Out, s.Err),
		kong.Exit(func(code int) { exit = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100, NoExpandSubcommands: true}),
		kong.Bind(s),
	}, options...)
	parser, err := kong.New(grammar, options...)
	if err != nil {
		return ExitCode(s.Err, err)
	}
	if len(arguments) == 0 {
		arguments = []string{"--help"}
	}
	selected, err := parser.Parse(arguments)
	if err == nil && exit < 0 && len(program) > 0 {
		err = handOver(selected, program)
	}
	switch {
	case exit >= 0: // --help was asked for, and has been printed
		return exit
	case err != nil:
		_, _ = fmt.Fprintf(s.Err, "rockpool: %s\nrockpool: see rockpool %s--help\n", output.Lines(err.Error()), asked(err))
		return CodeUsage
	}
	return ExitCode(s.Err, selected.Run())
}

// asked returns the command, and a space, whose help tells more about err.
func asked(err error) string {
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil {
		if node := parse.Context.Selected(); node != nil {
			return node.Path() + " "
		}
	}
	return ""
}

// A programTaker is a command that takes what stands after --.
type programTaker interface{ takeProgram(words []string) }

func handOver(selected *kong.Context, program []string) error {
	if taker, ok := selected.Selected().Target.Addr().Interface().(programTaker); ok {
		taker.takeProgram(program)
		return nil
	}
	return fmt.Errorf("%s takes no program after --", selected.Command())
}

// ExitCode returns the exit code of a command that returned err, after it has printed err.
func ExitCode(errs io.Writer, err error) int {
	var exit ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return int(exit)
	case errors.Is(err, context.Canceled): // by a signal: there is nothing to say
		return CodeInterrupted
	default:
		_, _ = fmt.Fprintf(errs, "rockpool: %s\n", output.Lines(err.Error()))
		return CodeOurs
	}
}

// splitProgram cuts arguments at the first "--": what follows is a program's,
// and no flag in it is ours.
func splitProgram(arguments []string) (ours, program []string) {
	for i, argument := range arguments {
		if argument == "--" {
			return arguments[:i], arguments[i+1:]
		}
	}
	return arguments, nil
}
