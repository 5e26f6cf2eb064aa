package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/cli/execution"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/paths"
)

type runCommand struct {
	command.Flags
	Env       string   `short:"e" complete:"environment" placeholder:"ENVIRONMENT" help:"Environment to run in, for example python. (the one that serves the file's language)"`
	File      []string `placeholder:"PATH" sep:"none" complete:"file" help:"Also upload this file. Can be given more than once."`
	Protected bool     `help:"Keep the program from changing and deleting the uploaded files."`
	Stdin     bool     `xor:"input" help:"Pass standard input to the program; without it, the program's input is empty."`
	TTY       bool     `name:"tty" short:"t" xor:"input" help:"Run the program on a terminal, connected to yours: for a shell, an editor, python3 -i."`
	TimeLimit *int     `type:"time" from:"0" to:"86400" placeholder:"TIME" help:"Time limit of the program, 0 to 1d; 0: no limit. (the environment's)"`
	Variable  []string `placeholder:"NAME=VALUE" sep:"none" help:"Environment variable of the program, in addition to the environment's. Can be given more than once."`
	Label     []string `placeholder:"NAME=VALUE" sep:"none" help:"Label of the execution and its runner, for searches. Can be given more than once."`
	caseFlags

	Main      string   `arg:"" optional:"" name:"file" complete:"file" help:"The program's file. It is uploaded, then built and run by its language, which its extension (.py, .c, .java), its #! line or the environment determines."`
	Arguments []string `arg:"" optional:"" passthrough:"" name:"argument" help:"Arguments for the program."`
	program   []string // the words after --
}

// Validate returns an error if neither --env nor a file determines the environment. kong calls it.
func (c *runCommand) Validate() error {
	if c.Env == "" && c.Main == "" {
		return errors.New("give an environment with --env: without a file, it can't be determined; `rockpool env list` lists the environments")
	}
	return nil
}

func (c *runCommand) takeProgram(words []string) { c.program = words }

// Private starts temporary servers, each for a single command.
type Private struct {
	// Use starts a server, calls use with a client of it, and stops the server. It returns the
	// error of use, of the server, or both. The server ends use's ctx when it fails. environment is
	// the only environment on the server. If it is "", the server has one for each language
	// installed here, and one for the language of file if that is installed.
	Use func(ctx context.Context, environment, file string, s command.Streams, use func(ctx context.Context, server *client.Client) error) error
}

// needed reports whether a command with these flags must start a temporary server.
func (p Private) needed(ctx context.Context, flags command.Flags) (bool, error) {
	if p.Use == nil {
		return false, nil
	}
	return flags.NeedsPrivate(ctx)
}

// Run runs a program, or with --cases a program once per case.
func (c *runCommand) Run(s command.Streams, private Private) error {
	server, err := c.Client()
	if err != nil {
		return err
	}
	run, err := c.prepare(s)
	if err != nil {
		return err
	}
	ctx, stop := command.Runnable()
	defer stop()
	if alone, err := private.needed(ctx, c.Flags); err != nil {
		return err
	} else if alone {
		return private.Use(ctx, c.Env, c.Main, s, func(ctx context.Context, server *client.Client) error {
			err := run(ctx, server)
			if unserved, ok := errors.AsType[*execution.UnservedError](err); ok {
				return unserved.OnPrivate()
			}
			return err
		})
	}
	return run(ctx, server)
}

// prepare checks the flags and reads the files. It returns the function that then uses a server.
func (c *runCommand) prepare(s command.Streams) (run func(ctx context.Context, server *client.Client) error, err error) {
	job, err := c.job(s)
	if err != nil {
		return nil, command.UsageError{Err: err}
	}
	if c.Cases == "" {
		if err := c.caseFlags.unused(); err != nil {
			return nil, command.UsageError{Err: err}
		}
		return func(ctx context.Context, server *client.Client) error {
			if err := c.choose(ctx, server, job); err != nil {
				return err
			}
			return runJob(ctx, job)
		}, nil
	}
	all, err := c.caseFlags.read(c.Stdin || c.TTY)
	if err != nil {
		return nil, command.UsageError{Err: err}
	}
	return func(ctx context.Context, server *client.Client) error {
		if err := c.choose(ctx, server, job); err != nil {
			return err
		}
		batch, err := c.caseFlags.job(all, job)
		if err != nil {
			return command.UsageError{Err: err}
		}
		return c.caseFlags.run(ctx, s, batch)
	}, nil
}

// choose sets the job's environment and commands, unless the command line gives them.
func (c *runCommand) choose(ctx context.Context, server *client.Client, j *execution.Job) error {
	j.Client = server
	if c.Main == "" || c.Env != "" && len(c.program) > 0 {
		return nil
	}
	out, err := client.GetLanguages(ctx, command.Patient(server, command.Patience))
	if err != nil {
		return err
	}
	l, err := execution.LaunchOf(out.Languages, c.Env, j.Files[0], c.Arguments)
	switch {
	case errors.As(err, new(*execution.UnservedError)): // the server's lack
		return err
	case err != nil:
		return command.UsageError{Err: err}
	}
	// A command after -- takes precedence over the language's. Only the environment is chosen then.
	j.Environment = l.Environment
	if len(c.program) == 0 {
		j.Build, j.Command = l.Build, l.Command
		if !slices.ContainsFunc(j.Files, func(f client.FileInput) bool { return f.Path == l.Path }) {
			j.Files[0].Path = l.Path // Java wants a file of the public class's name
		}
	}
	return nil
}

// newJob returns a job that is connected to the command's streams. A nil server must be set before
// the job runs.
func newJob(s command.Streams, server *client.Client) *execution.Job {
	return &execution.Job{Follower: execution.Follower{Out: s.Out, Err: s.Err, Client: server}, In: s.In}
}

// runJob runs a job and prints how it ended. On a terminal it also prints the hint, if there is one.
func runJob(ctx context.Context, j *execution.Job) error {
	ended, err := j.Run(ctx)
	code, words := command.CodeOf(ended)
	switch {
	case errors.Is(err, context.Canceled):
		code, words = command.CodeInterrupted, ""
	case command.ClosedPipe(err):
		code, words = command.CodePipe, ""
	case err != nil:
		code, words = failureCode(err), command.Explained(err).Error()
	}
	if words != "" {
		_, _ = fmt.Fprintf(j.Err, "rockpool: %s\n", output.Lines(words))
	}
	switch {
	case err != nil && code != command.CodePipe:
		hint(j.Err, command.Advice(err))
	case output.OnTerminal(j.Err) || os.Getenv("ROCKPOOL_HINTS") == "1":
		hint(j.Err, ended.Hint)
	}
	return command.ExitError(code)
}

// job reads the files and returns the job for a single run.
func (c *runCommand) job(s command.Streams) (*execution.Job, error) {
	labels, err := pairs[client.LabelInput]("--label", c.Label)
	if err != nil {
		return nil, err
	}
	j := newJob(s, nil)
	j.Labels = labels
	if j.Variables, err = pairs[client.VariableInput]("--variable", c.Variable); err != nil {
		return nil, err
	}
	j.Environment, j.Command, j.TimeLimit, j.Stdin, j.Protected = c.Env, c.program, c.TimeLimit, c.Stdin, c.Protected
	if c.Main != "" {
		file, err := execution.ReadUpload(c.Main)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("the file %s doesn't exist on this machine. If it is a command in the environment, put it after --: rockpool run --env %s -- %s",
				c.Main, cmp.Or(c.Env, "ENVIRONMENT"), strings.Join(append([]string{c.Main}, c.Arguments...), " "))
		}
		if err != nil {
			return nil, fmt.Errorf("can't read the program's file on this machine: %w. To run a command that is installed in the environment, put it after --", err)
		}
		j.Files = append(j.Files, file)
	}
	for _, path := range c.File {
		file, err := execution.ReadUpload(path)
		if err != nil {
			return nil, fmt.Errorf("--file: %w", err)
		}
		file.Path = paths.Text(file.Path)
		j.Files = append(j.Files, file)
	}
	if len(c.program) == 0 && c.Main == "" {
		return nil, errors.New("no program is given: give a file, or a command after --")
	}
	if len(j.Files) > 0 {
		j.Directory = runtime.Workspace // the files are there; the image may have another directory
	}
	if c.TTY {
		var err error
		j.Terminal, err = output.OpenTerminal(s.In, s.Out, s.Err)
		return j, err
	}
	return j, nil
}
