// Rockpool runs other people's programs in isolated runners. This package is
// the program: the server's commands and settings, and the wiring of it all.
package main

import (
	"io"
	"os"

	"github.com/alecthomas/kong"

	"github.com/rockpool/rockpool/cli"
)

const description = `Rockpool runs other people's programs, each in an isolated runner that is warm already.

First start a server, then run something on it:

    rockpool serve
    rockpool run --env python hello.py

Every command has examples in its own help: rockpool COMMAND --help`

type commands struct {
	Serve       serveCommand       `cmd:"" help:"Serve the API, with runners on this machine, which needs root, or on Nomad."`
	Helper      helperCommand      `cmd:"" help:"Make the sandboxes of a server that isn't root; only this is, then."`
	ImageWorker imageWorkerCommand `cmd:"" hidden:""`
	Doctor      doctorCommand      `cmd:"" help:"Find out, by trying, what this machine can isolate, and what to do where it can't."`
	Bench       benchCommand       `cmd:"" help:"Measure servers of its own beside what they can't be faster than. Needs root."`
	Chaos       chaosCommand       `cmd:"" hidden:"" help:"Kill a server of its own again and again, and judge that nothing is lost. Needs root."`
	cli.Commands
	Version versionCommand `cmd:"" help:"Print the version."`
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
		kong.Vars{"version": version()}, kong.Bind(cli.Private{Use: usePrivate}))
}
