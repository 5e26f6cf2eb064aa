// Rockpool runs other people's programs in isolated runners. This package is
// the program: its commands, their settings, and the wiring of the server.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"
)

const description = `Rockpool runs other people's programs, each in an isolated runner that is warm already.

First start a server, then run something on it:

    rockpool serve
    rockpool run --env python hello.py`

type commands struct {
	Serve   serveCommand   `cmd:"" help:"Serve the API, with runners on this machine. Needs root."`
	Run     runCommand     `cmd:"" help:"Run a program on a server, and exit with its code."`
	Version versionCommand `cmd:"" help:"Print the version."`
}

func main() {
	os.Exit(execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// streams are a command's ends.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// execute runs one command and returns the program's exit code.
func execute(arguments []string, in io.Reader, out, errs io.Writer) int {
	arguments, program := splitProgram(arguments)
	var commands commands
	commands.Run.Program = program
	exit := -1
	parser, err := kong.New(&commands,
		kong.Name("rockpool"),
		kong.Description(description),
		kong.Writers(out, errs),
		kong.Exit(func(code int) { exit = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.Vars{"version": version()},
		kong.Bind(streams{in, out, errs}),
	)
	if err != nil {
		return fail(errs, err)
	}
	if len(arguments) == 0 {
		arguments = []string{"--help"}
	}
	selected, err := parser.Parse(arguments)
	switch {
	case exit >= 0: // --help was asked for, and has been printed
		return exit
	case err != nil:
		_, _ = fmt.Fprintf(errs, "rockpool: %v\nrockpool: see rockpool --help\n", err)
		return codeUsage
	}
	return fail(errs, selected.Run())
}

// An exitError ends the program with a code; what there was to say is said.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit %d", int(e)) }

func fail(errs io.Writer, err error) int {
	var exit exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return int(exit)
	default:
		_, _ = fmt.Fprintf(errs, "rockpool: %v\n", err)
		return codeOurs
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
