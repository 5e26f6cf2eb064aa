// Package cli implements the commands that use a server, for people and for scripts. They use only
// the server's API (package client). If a connection breaks, they retry without running anything
// twice.
//
// A command is a struct that kong fills, with a method Run. Its output for people may change
// between versions. Its output with --json uses the API's names and is stable.
package cli

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/rockpool/rockpool/cli/admin"
	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/cli/execution"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/config/quantity"
)

// Commands is the grammar of this package's commands, for kong.
type Commands struct {
	Run        runCommand           `cmd:"" help:"Run a program on a server and exit with its code."`
	Languages  languagesCommand     `cmd:"" help:"List the languages that rockpool run recognizes, and the environment of each."`
	Env        envCommands          `cmd:"" help:"List, show, put and delete environments: the configurations of runners."`
	Runner     runnerCommands       `cmd:"" help:"List, claim and release runners, run commands in them, and copy files."`
	Exec       execCommands         `cmd:"" help:"List, show, follow and cancel executions: the programs that run or ran in runners."`
	Top        topCommand           `cmd:"" help:"Show running executions and their resource use, once a second."`
	Token      admin.TokenCommands  `cmd:"" help:"Create, list and revoke tokens, and create grants."`
	Tenant     admin.TenantCommands `cmd:"" help:"List, put and delete tenants and their quotas."`
	Ticket     ticketCommands       `cmd:"" help:"Show, watch and cancel tickets: claims that wait in the background."`
	Queue      queueCommand         `cmd:"" help:"List all claims that wait for a runner, with or without a ticket."`
	Audit      admin.AuditCommand   `cmd:"" help:"Print the audit log: which caller changed which object."`
	Whoami     admin.WhoamiCommand  `cmd:"" help:"Show your token, role and tenant, as the server sees them."`
	MCP        mcpCommand           `cmd:"" name:"mcp" help:"Connect an AI agent on this machine to a server, over stdin and stdout."`
	Drain      admin.DrainCommand   `cmd:"" help:"Drain a server before maintenance, or end the drain."`
	Help       helpCommand          `cmd:"" help:"Show the help of a command."`
	Completion completionCommand    `cmd:"" help:"Print the completion script for bash or zsh."`
	Complete   completeCommand      `cmd:"" name:"__complete" hidden:""`
}

// Execute parses arguments by a kong grammar, runs the selected command and returns the program's
// exit code. It prints errors to s.Err.
func Execute(grammar any, description string, arguments []string, s command.Streams, options ...kong.Option) int {
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
		kong.KindMapper(reflect.String, kong.MapperFunc(decodeString)),
		kong.Bind(s),
		HelpTexts(),
	}, options...)
	parser, err := kong.New(grammar, options...)
	if err != nil {
		return ExitCode(s.Err, err)
	}
	parser.Model.HelpFlag.Help = "Show this help."
	selected, err := parser.Parse(helpFlags(arguments))
	// A group of commands ends with "help".
	if node := parsedNode(err); len(arguments) > 0 && arguments[len(arguments)-1] == "help" && node != nil && len(node.Children) > 0 {
		selected, err = parser.Parse(helpFlags(append([]string{"help"}, arguments[:len(arguments)-1]...)))
	}
	if err == nil && exit < 0 && len(program) > 0 {
		err = passProgram(selected, program)
	}
	switch {
	case exit >= 0: // kong has printed --help
		return exit
	case err != nil:
		named := ""
		if node := parsedNode(err); node != nil {
			named = node.Path() + " "
		}
		_, _ = fmt.Fprintf(s.Err, "rockpool: %s\nrockpool: see `rockpool %s--help`\n", output.Lines(err.Error()+correction(err)), named)
		return command.CodeUsage
	}
	return run(s, selected)
}

// run runs the selected command. Its method Run may take a context, which ends with the first signal,
// and a client of the server that the command's flags name: a Sender retries, a *Client doesn't.
func run(s command.Streams, selected *kong.Context) int {
	stop := func() {}
	defer func() { stop() }()
	flags := func() command.Flags {
		return selected.Selected().Target.FieldByName("Flags").Interface().(command.Flags)
	}
	err := errors.Join(
		selected.BindToProvider(func() (ctx context.Context) {
			ctx, stop = command.Stoppable()
			return ctx
		}),
		selected.BindToProvider(func() (*client.Client, error) { return flags().Client() }),
		selected.BindToProvider(func() (client.Sender, error) { return flags().Patient() }),
	)
	if err == nil {
		err = selected.Run()
	}
	return ExitCode(s.Err, err)
}

// helpCommand makes help appear in lists of commands. It never runs: Execute rewrites it to --help.
type helpCommand struct {
	Command []string `arg:"" optional:"" help:"The command, for example: exec list."`
}

// texts has the long help of commands, in files named after their words.
//
//go:embed help
var texts embed.FS

// HelpTexts gives each command its long help.
func HelpTexts() kong.Option {
	return kong.PostBuild(func(k *kong.Kong) error {
		return kong.Visit(k.Model, func(node kong.Visitable, next kong.Next) error {
			if command, is := node.(*kong.Node); is && command.Type == kong.CommandNode {
				words := strings.Fields(command.Path())
				if text, err := texts.ReadFile("help/" + strings.Join(words, "-") + ".txt"); err == nil {
					command.Detail = strings.TrimSuffix(string(text), "\n")
				}
			}
			return next(nil)
		})
	})
}

// decodeString sets a string to the bytes of an argument. kong's own mapper replaces bytes that aren't
// UTF-8, which names of files may have.
func decodeString(ctx *kong.DecodeContext, target reflect.Value) error {
	token, err := ctx.Scan.PopValue("string")
	if err != nil {
		return err
	}
	text, ok := token.Value.(string)
	if !ok {
		return fmt.Errorf("expected a string, not %v", token.Value)
	}
	target.SetString(text)
	return nil
}

// helpFlags rewrites "help COMMAND" to "COMMAND --help", which the parser knows.
func helpFlags(arguments []string) []string {
	switch {
	case len(arguments) == 0:
		return []string{"--help"}
	case arguments[0] == "help" && !slices.ContainsFunc(arguments, func(a string) bool { return strings.HasPrefix(a, "-") }):
		return append(slices.Clone(arguments[1:]), "--help")
	}
	return arguments
}

// parsedNode returns the command that a parser's error is about, or nil.
func parsedNode(err error) *kong.Node {
	if parse, ok := errors.AsType[*kong.ParseError](err); ok && parse.Context != nil {
		return parse.Context.Selected()
	}
	return nil
}

// correction returns how to write a command line whose words are in the wrong place; "" if err is
// about something else.
func correction(err error) string {
	node := parsedNode(err)
	switch said := err.Error(); {
	case strings.Contains(said, "did you mean"):
		return ""
	case strings.HasPrefix(said, "unknown flag") && (node == nil || len(node.Children) > 0):
		return "; flags come after the command, for example: rockpool run --server URL hello.py"
	case strings.HasPrefix(said, "unexpected argument") && node != nil && node.Target.CanAddr():
		if _, ok := node.Target.Addr().Interface().(programTaker); ok {
			return "; put the command to run after --, for example: rockpool runner exec RUNNER -- ls -l"
		}
	}
	return ""
}

// A programTaker is a command that takes another program's words after --.
type programTaker interface{ takeProgram(words []string) }

// passProgram gives the words after -- to the selected command. It is an error if that takes none.
func passProgram(selected *kong.Context, program []string) error {
	if taker, ok := selected.Selected().Target.Addr().Interface().(programTaker); ok {
		taker.takeProgram(program)
		return nil
	}
	return fmt.Errorf("%s doesn't take a program after --", selected.Command())
}

// ExitCode prints err and a hint, if there is one, to errs. It returns the exit code for err.
func ExitCode(errs io.Writer, err error) int {
	exit, exits := errors.AsType[command.ExitError](err)
	switch {
	case err == nil:
		return 0
	case exits:
		return int(exit)
	case errors.Is(err, context.Canceled): // by a signal: the user knows why
		return command.CodeInterrupted
	default:
		_, _ = fmt.Fprintf(errs, "rockpool: %s\n", output.Lines(command.Explained(err).Error()))
		hint(errs, command.Advice(err))
		return failureCode(err)
	}
}

// failureCode returns the exit code for an error that isn't an command.ExitError.
func failureCode(err error) int {
	if errors.As(err, new(command.UsageError)) || errors.As(err, new(*execution.TooLargeError)) {
		return command.CodeUsage
	}
	return command.CodeOurs
}

// hint prints what to do, unless the text is empty.
func hint(errs io.Writer, text string) {
	if text != "" {
		_, _ = fmt.Fprintf(errs, "rockpool: hint: %s\n", output.Plain(text))
	}
}

// splitProgram cuts arguments at the first "--". The words after it belong to another program: they
// are never parsed as our flags.
func splitProgram(arguments []string) (ours, program []string) {
	for i, argument := range arguments {
		if argument == "--" {
			return arguments[:i], arguments[i+1:]
		}
	}
	return arguments, nil
}
