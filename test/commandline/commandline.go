// Package commandline is what the programs that start servers of their own, the
// bench and the chaos, share: flags, signals, exit codes, and the servers'
// environment.
package commandline

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/rockpool/rockpool/cli"
	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/config/quantity"
)

// Execute parses the arguments by a grammar, runs the command, and returns the exit code.
// The command's Run may take the streams.
func Execute(grammar any, name, description string, arguments []string, s command.Streams) int {
	exit := -1
	parser, err := kong.New(grammar, kong.Name(name), kong.Description(description),
		kong.Writers(s.Out, s.Err), kong.Exit(func(code int) { exit = code }), kong.Bind(s), quantity.Flags())
	if err != nil {
		return cli.ExitCode(s.Err, err)
	}
	selected, err := parser.Parse(arguments)
	switch {
	case exit >= 0: // --help was printed
		return exit
	case err != nil:
		_ = cli.ExitCode(s.Err, err)
		return command.CodeUsage
	}
	return cli.ExitCode(s.Err, selected.Run())
}

// UntilSignal returns a context that ends with a signal to end. Stop has signals
// end the program again.
func UntilSignal() (ctx context.Context, stop context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
}

// Environment returns this process's variables, without those that begin with any
// of the prefixes: the settings of other servers.
func Environment(without ...string) []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return slices.ContainsFunc(without, func(prefix string) bool { return strings.HasPrefix(entry, prefix) })
	})
}
