package cli

import (
	"errors"
	"fmt"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

type runnerExec struct {
	command.Flags
	ID        string   `arg:"" name:"runner" complete:"runner" help:"Id of a claimed runner."`
	Stdin     bool     `help:"Pass standard input to the command; without it, the command's input is empty."`
	TimeLimit *int     `type:"time" from:"0" to:"86400" placeholder:"TIME" help:"Time limit of the command, 0 to 1d; 0: no limit. (the environment's)"`
	Variable  []string `placeholder:"NAME=VALUE" sep:"none" help:"Environment variable of the program, in addition to the environment's. Can be given more than once."`
	Label     []string `placeholder:"NAME=VALUE" sep:"none" help:"Label of the execution, for searches; added to the labels of the claim. Can be given more than once."`
	program   []string
}

func (c *runnerExec) takeProgram(words []string) { c.program = words }

func (c *runnerExec) Run(s command.Streams) error {
	if len(c.program) == 0 {
		return command.UsageError{Err: errors.New("no command is given: add one after --")}
	}
	labels, err := pairs[client.LabelInput]("--label", c.Label)
	if err != nil {
		return command.UsageError{Err: err}
	}
	variables, err := pairs[client.VariableInput]("--variable", c.Variable)
	if err != nil {
		return command.UsageError{Err: err}
	}
	server, err := c.Client()
	if err != nil {
		return err
	}
	j := newJob(s, server)
	j.Variables = variables
	j.Runner, j.Command, j.TimeLimit, j.Stdin, j.Labels = c.ID, c.program, c.TimeLimit, c.Stdin, labels
	ctx, stop := command.Runnable()
	defer stop()
	return runJob(ctx, j)
}

type runnerShell struct {
	command.Flags
	ID      string `arg:"" optional:"" name:"runner" complete:"runner" help:"Id of a claimed runner."`
	Env     string `short:"e" complete:"environment" placeholder:"ENVIRONMENT" help:"Claim a runner of this environment, and release it when the shell ends."`
	program []string
}

func (c *runnerShell) takeProgram(words []string) { c.program = words }

// anyShell is a script for sh that starts bash if it is installed, else sh. Bash controls its jobs
// through standard error, so that is the terminal too.
const anyShell = `if command -v bash >/dev/null; then exec bash -i 2>&1; else exec sh -i 2>&1; fi`

func (c *runnerShell) Run(s command.Streams) error {
	if (c.ID == "") == (c.Env == "") {
		return command.UsageError{Err: errors.New("give either the id of a runner or an environment with --env")}
	}
	server, err := c.Client()
	if err != nil {
		return err
	}
	unlimited := 0
	j := newJob(s, server)
	j.Runner, j.Environment, j.TimeLimit, j.Command = c.ID, c.Env, &unlimited, c.program
	if j.Terminal, err = output.OpenTerminal(s.In, s.Out, s.Err); err != nil {
		return command.UsageError{Err: c.withoutTerminal()}
	}
	if len(c.program) == 0 {
		j.Command, j.CommandLine = []string{"sh", "-c", anyShell}, "shell"
	}
	ctx, stop := command.Runnable()
	defer stop()
	return runJob(ctx, j)
}

// withoutTerminal returns the error without a terminal: it names the command to use instead.
func (c *runnerShell) withoutTerminal() error {
	program, instead := "COMMAND", "rockpool runner exec "+c.ID
	if len(c.program) > 0 {
		program = runtime.Execution{Command: c.program}.CommandLine()
	}
	if c.Env != "" {
		instead = "rockpool run --env " + c.Env
	}
	return fmt.Errorf("rockpool runner shell needs a terminal as standard input, and there is none; use: %s -- %s (add --stdin to pass standard input)", instead, program)
}
