package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rockpool/rockpool/cli/advice"
	"github.com/rockpool/rockpool/cli/connection"
	"github.com/rockpool/rockpool/cli/execution"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/cli/terminal"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

type runCommand struct {
	connection.Flags
	Env       string   `short:"e" complete:"environment" placeholder:"ENVIRONMENT" help:"The environment to run in, for example python. (the one that serves the file's language)"`
	File      []string `placeholder:"PATH" sep:"none" complete:"file" help:"Upload this file too. Can be given more than once."`
	Stdin     bool     `xor:"input" help:"Feed the program what this command reads on its standard input; else its input is empty."`
	TTY       bool     `name:"tty" short:"t" xor:"input" help:"Run the program on a terminal, joined with this one: for a shell, an editor, python3 -i."`
	TimeLimit *int     `type:"time" from:"0" to:"86400" placeholder:"TIME" help:"How long the program may run, 0 to 1d; 0: without limit. (the environment's)"`
	Label     []string `placeholder:"NAME=VALUE" sep:"none" help:"Something to find the execution and its runner again by. Can be given more than once."`
	caseFlags

	Main      string   `arg:"" optional:"" name:"file" complete:"file" help:"The program's file. It is uploaded, and built and run as the server's languages say, by its ending (.py, .c, .java), its #! line, or its environment."`
	Arguments []string `arg:"" optional:"" passthrough:"" name:"argument" help:"Arguments for the program."`
	program   []string // what stands after --
}

// Validate returns an error where nothing names the environment, for kong.
func (c *runCommand) Validate() error {
	if c.Env == "" && c.Main == "" {
		return errors.New("name an environment with --env: without a file, it can't be chosen; `rockpool env list` lists them")
	}
	return nil
}

func (c *runCommand) takeProgram(words []string) { c.program = words }

// Help returns the description and examples for rockpool run --help.
func (*runCommand) Help() string {
	return `Claims a runner (waiting up to 30 s for one), uploads the files to its workspace, runs the program there, copies its output to stdout and stderr byte for byte, and releases the runner.

What follows -- is the command to run instead of a file:

    rockpool run hello.py
    rockpool run hello.c one two
    rockpool run --env science --label user=ada hello.py
    rockpool run --env python --file tests.py hello.py -- python3 -m unittest tests
    seq 10 | rockpool run --env shell --stdin -- sort -rn
    rockpool run --env python --tty -- python3 -i
    rockpool run --cases tests main.c
    rockpool run --env c --build 'make main' --cases tests --file main.c --file Makefile -- ./main

Without --env, it runs in the environment that serves the language of the file: ` + "`rockpool languages`" + ` lists them. A compiler's own exit code is the command's where it fails, and what it prints goes to stderr.

With --cases the program runs once for each case of a directory, after --build, if that is given. A case is what the directory has of one name: 1.in is its standard input, 1.args its arguments, one a line, and 1.out the output that it must print; white space at the end of lines, and empty lines at the end, don't count. Each case has the time limit for itself. A line says what became of it, and stderr what the build prints.

With --tty every key goes to the program: Ctrl-C interrupts it as on any terminal, and the window's size follows this one's. Without, Ctrl-C cancels the program and releases its runner; a second one leaves at once, and the runner is released by itself after a minute.

On a terminal, or with ROCKPOOL_HINTS=1, a line on stderr says after a failed program what it seems to lack: an interpreter, a module, or the network. Output and exit code stay the program's.

Where neither a server nor a token was named and no server listens at http://127.0.0.1:8080, a private one is started, which ends with the run and leaves nothing behind. It runs what this machine has the programs for. That takes some tenths of a second more, each time. Without root it says what its runner goes without, such as a limit of memory.

Exit codes, with --cases 1 where a case or the build failed, else:
    the program's own, if it exited
    128+N  it was ended by signal N
    124    it was ended by a limit: time, CPU, memory, processes or output; stderr says which
    125    Rockpool failed: no server, no runner, a file that isn't there, the runner went
    130    it was cancelled, by Ctrl-C, a hang-up or somebody else
    2      the command line can't be understood`
}

// A Private server runs for one command alone. Use starts one that has an
// environment ("": those that this machine has programs for, and one for the language of file if it has that), calls use
// with a client of it, and ends it; ctx of use ends if the server does.
type Private struct {
	Use func(ctx context.Context, environment, file string, s Streams, use func(ctx context.Context, server *client.Client) error) error
}

// wanted reports whether a command with these flags is to start one.
func (p Private) wanted(ctx context.Context, flags connection.Flags) (bool, error) {
	if p.Use == nil {
		return false, nil
	}
	return flags.Alone(ctx)
}

// Run runs a program.
func (c *runCommand) Run(s Streams, private Private) error {
	server, err := c.Client()
	if err != nil {
		return err
	}
	run, err := c.prepare(s)
	if err != nil {
		return err
	}
	ctx, stop := stoppable()
	defer stop()
	if alone, err := private.wanted(ctx, c.Flags); err != nil {
		return err
	} else if alone {
		return private.Use(ctx, c.Env, c.Main, s, func(ctx context.Context, server *client.Client) error {
			err := run(ctx, server)
			var unserved *unservedError
			if errors.As(err, &unserved) {
				return unserved.onPrivate()
			}
			return err
		})
	}
	return run(ctx, server)
}

// prepare checks the flags, reads the files, and returns what is to be done with a server.
func (c *runCommand) prepare(s Streams) (run func(ctx context.Context, server *client.Client) error, err error) {
	job, err := c.job(s)
	if err != nil {
		return nil, err
	}
	if c.Cases == "" {
		return func(ctx context.Context, server *client.Client) error {
			if err := c.choose(ctx, server, job); err != nil {
				return err
			}
			return runJob(ctx, job, "--file")
		}, c.caseFlags.unused()
	}
	all, err := c.caseFlags.read(c.Stdin || c.TTY)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, server *client.Client) error {
		if err := c.choose(ctx, server, job); err != nil {
			return err
		}
		batch, err := c.caseFlags.job(all, job)
		if err != nil {
			return err
		}
		return c.caseFlags.run(ctx, s, batch)
	}, nil
}

// choose fills in the environment and commands that the command line doesn't name.
func (c *runCommand) choose(ctx context.Context, server *client.Client, j *execution.Job) error {
	j.Client = server
	if c.Main == "" || c.Env != "" && len(c.program) > 0 {
		return nil
	}
	out, err := client.GetLanguages(ctx, connection.Patient(server, connection.Patience))
	if err != nil {
		return err
	}
	l, err := launchOf(out.Languages, c.Env, j.Files[0], c.Arguments)
	if err != nil {
		return err
	}
	j.Environment = l.environment
	if len(c.program) == 0 {
		j.Build, j.Command = l.build, l.command
	}
	return nil
}

func newJob(s Streams, server *client.Client) *execution.Job {
	return &execution.Job{Follower: execution.Follower{Out: s.Out, Err: s.Err, Client: server}, In: s.In}
}

// runJob runs a job and says how it ended, and on a terminal what may help. The flag or command upload puts files
// into its runner.
func runJob(ctx context.Context, j *execution.Job, upload string) error {
	ended, err := j.Run(ctx)
	code, words := exitCode(ended)
	switch {
	case errors.Is(err, context.Canceled):
		code, words = CodeInterrupted, ""
	case err != nil:
		code, words = CodeOurs, err.Error()
	}
	if words != "" {
		_, _ = fmt.Fprintf(j.Err, "rockpool: %s\n", output.Lines(words))
	}
	switch {
	case err != nil:
		hint(j.Err, advice.Case{Err: err})
	case onTerminal(j.Err) || os.Getenv("ROCKPOOL_HINTS") == "1":
		hintAfter(ctx, j, advice.Case{ExitCode: code, Message: ended.Message, Stderr: string(j.Tail), Environment: j.Environment, Upload: upload})
	}
	return ExitError(code)
}

// hintAfter says what may help a program that failed, once it is known that its environment has
// to do with it.
func hintAfter(ctx context.Context, j *execution.Job, c advice.Case) {
	if ctx.Err() != nil || advice.For(c) == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, hintPatience)
	defer cancel()
	out, err := client.GetEnvironment(ctx, j.Client, j.Environment)
	if err == nil && out.Environment != nil {
		c.Image, c.Network = out.Environment.Image, out.Environment.Network.Access || len(out.Environment.Network.Allow)+len(out.Environment.Network.AllowNames) > 0
	} else {
		c.Environment = ""
	}
	hint(j.Err, c)
}

// hintPatience is how long a hint may take, once the program has ended.
const hintPatience = 2 * time.Second

// job reads the files and decides what is to be run.
func (c *runCommand) job(s Streams) (*execution.Job, error) {
	labels, err := labelInputs(c.Label)
	if err != nil {
		return nil, err
	}
	j := newJob(s, nil)
	j.Labels = labels
	j.Environment, j.Command, j.TimeLimit, j.Stdin = c.Env, c.program, c.TimeLimit, c.Stdin
	if c.Main != "" {
		file, err := readUpload(c.Main)
		if err != nil {
			return nil, fmt.Errorf("the program's file is read on this machine: %w. To run a command that the environment has, put it after --", err)
		}
		j.Files = append(j.Files, file)
	}
	for _, path := range c.File {
		file, err := readUpload(path)
		if err != nil {
			return nil, fmt.Errorf("--file: %w", err)
		}
		j.Files = append(j.Files, file)
	}
	if len(c.program) == 0 && c.Main == "" {
		return nil, errors.New("there is nothing to run: name a file, or a command after --")
	}
	if len(j.Files) > 0 {
		j.Directory = runtime.Workspace // they are there; the image may begin elsewhere
	}
	if c.TTY {
		var err error
		j.Terminal, err = terminal.Open(s.In, s.Out, s.Err)
		return j, err
	}
	return j, nil
}
