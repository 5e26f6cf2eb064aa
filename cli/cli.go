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
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/rockpool/rockpool/cli/advice"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/config/quantity"
)

// Commands are those of this package, for kong.
type Commands struct {
	Run        runCommand        `cmd:"" help:"Run a program on a server, and exit with its code."`
	Languages  languagesCommand  `cmd:"" help:"List the languages that run knows by a file's ending, and where each runs."`
	Env        envCommands       `cmd:"" help:"List, show, put and delete environments: what runners are made from."`
	Runner     runnerCommands    `cmd:"" help:"List, claim, enter and release runners, run commands in them, and copy files."`
	Exec       execCommands      `cmd:"" help:"List, show, follow and cancel executions: what runs or ran in runners."`
	Top        topCommand        `cmd:"" help:"Show what runs, and what it uses, once a second."`
	Token      tokenCommands     `cmd:"" help:"Make, list and revoke tokens, and make grants: what callers show."`
	Tenant     tenantCommands    `cmd:"" help:"List, put and delete tenants, and their quotas."`
	Ticket     ticketCommands    `cmd:"" help:"Show, watch and cancel tickets: claims that wait for a runner."`
	Queue      queueCommand      `cmd:"" help:"List the claims that wait for a runner, with and without a ticket."`
	Audit      auditCommand      `cmd:"" help:"Print the audit log: who did what to which object."`
	Whoami     whoamiCommand     `cmd:"" help:"Show how the server knows you."`
	MCP        mcpCommand        `cmd:"" name:"mcp" help:"Let an AI agent on this machine use a server, over stdin and stdout."`
	Drain      drainCommand      `cmd:"" help:"Let a server run empty before maintenance, or end that."`
	Help       helpCommand       `cmd:"" help:"Show the help of a command."`
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
		kong.ValueFormatter(quantity.Help),
		quantity.Flags(),
		kong.Bind(s),
	}, options...)
	parser, err := kong.New(grammar, options...)
	if err != nil {
		return ExitCode(s.Err, err)
	}
	selected, err := parser.Parse(helpFlags(arguments))
	if len(arguments) > 0 && arguments[len(arguments)-1] == "help" && isGroup(err) {
		selected, err = parser.Parse(helpFlags(append([]string{"help"}, arguments[:len(arguments)-1]...)))
	}
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

// helpFlags makes "help COMMAND" what the parser knows: "COMMAND --help".
func helpFlags(arguments []string) []string {
	switch {
	case len(arguments) == 0:
		return []string{"--help"}
	case arguments[0] == "help" && !slices.ContainsFunc(arguments, func(a string) bool { return strings.HasPrefix(a, "-") }):
		return append(slices.Clone(arguments[1:]), "--help")
	}
	return arguments
}

// isGroup reports whether an error is that a command must be followed by another one.
func isGroup(err error) bool {
	var parse *kong.ParseError
	return errors.As(err, &parse) && parse.Context.Selected() != nil && len(parse.Context.Selected().Children) > 0
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
		hint(errs, advice.Case{Err: err})
		return CodeOurs
	}
}

// hint says what to do about a case, if somebody knows that.
func hint(errs io.Writer, c advice.Case) {
	if says := advice.For(c); says != "" {
		_, _ = fmt.Fprintf(errs, "rockpool: hint: %s\n", output.Plain(says))
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
