package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"
)

type runCommand struct {
	Env       string   `required:"" short:"e" placeholder:"ENVIRONMENT" help:"The environment to run in, for example python."`
	File      []string `placeholder:"PATH" sep:"none" help:"Upload this file too. Can be given more than once."`
	Stdin     bool     `help:"Feed the program what this command reads on its standard input; else its input is empty."`
	TimeLimit *int     `placeholder:"SECONDS" help:"How long the program may run, 0 to 86400; 0: without limit. (the environment's)"`
	Server    string   `env:"ROCKPOOL_SERVER" default:"http://127.0.0.1:8080" placeholder:"URL" help:"The server to run on. (${default}; $$${env})"`

	Main      string   `arg:"" optional:"" name:"file" help:"The program's file. It is uploaded, and run by its ending (.py, .js, .c, .sh), its #! line, or its environment."`
	Arguments []string `arg:"" optional:"" passthrough:"" name:"argument" help:"Arguments for the program."`
	Program   []string `kong:"-"` // what stands after --
}

// Help is what rockpool run --help says beyond the flags.
func (runCommand) Help() string {
	return `Claims a runner (waiting up to 30 s for one), uploads the files to its workspace, runs the program there, copies its output to stdout and stderr byte for byte, and releases the runner.

What follows -- is the command to run instead:

    rockpool run --env python --file tests.py hello.py -- python3 -m unittest tests

Ctrl-C cancels the program and releases its runner; a second one leaves at once, and the runner is released by itself after a minute.

Exit codes:
    the program's own, if it exited
    128+N  it was ended by signal N
    124    it was ended by a limit: time, CPU, memory, processes or output; stderr says which
    125    Rockpool failed: no server, no runner, a file that isn't there, the runner went
    130    it was cancelled, by Ctrl-C or by somebody else
    2      the command line can't be understood`
}

// Run runs a program.
func (c *runCommand) Run(s streams) error {
	job, err := c.job(s)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	code, err := job.run(ctx)
	if err != nil {
		_, _ = fmt.Fprintf(s.err, "rockpool: %v\n", err)
	}
	return exitError(code)
}

// job reads the files and decides what is to be run.
func (c *runCommand) job(s streams) (*job, error) {
	base, err := url.Parse(c.Server)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("--server (or ROCKPOOL_SERVER) is %q, but must be a URL, for example http://127.0.0.1:8080", c.Server)
	}
	if c.TimeLimit != nil && (*c.TimeLimit < 0 || *c.TimeLimit > 86400) {
		return nil, fmt.Errorf("--time-limit is %d, but must be 0 to 86400 seconds", *c.TimeLimit)
	}
	j := &job{client: newClient(c.Server), streams: s, environment: c.Env, command: c.Program, timeLimit: c.TimeLimit, stdin: c.Stdin}
	paths := c.File
	if c.Main != "" {
		paths = append([]string{c.Main}, paths...)
	}
	for _, path := range paths {
		file, err := readUpload(path)
		if err != nil {
			return nil, err
		}
		j.files = append(j.files, file)
	}
	switch {
	case len(c.Program) > 0:
	case c.Main == "":
		return nil, errors.New("there is nothing to run: name a file, or a command after --")
	default:
		if j.command, err = launch(c.Env, j.files[0], c.Arguments); err != nil {
			return nil, err
		}
	}
	return j, nil
}
