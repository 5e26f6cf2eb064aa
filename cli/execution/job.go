// Package execution runs programs on a server: it claims a runner, starts the program,
// joins it with this end's input and output, and follows it to its end over
// connections that break.
package execution

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/rockpool/rockpool/cli/connection"
	"github.com/rockpool/rockpool/cli/terminal"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

// How long commands wait, and for what.
const (
	runnerPatience = 30 * time.Second       // for a runner
	silence        = 300 * time.Millisecond // before a command says that it waits
	cancelPatience = 3 * time.Second        // for the end of what was cancelled
	goodbye        = 5 * time.Second        // for the last calls
	abandoned      = 60                     // seconds after which the server releases a runner that nobody uses
)

// A Job is one program's run on a server, from claim to release. Every call
// has a key or an offset, so that it is safe to repeat where the connection
// broke before the answer came.
type Job struct {
	Follower
	In          io.Reader
	Environment string // to claim a runner of; "": Runner is there, and stays
	Runner      string
	Files       []client.FileInput
	Build       []string // to run first; what it prints goes to Err. Empty: nothing
	Command     []string
	Directory   string              // to run both in; "": the image's
	CommandLine string              // to show, where Command has a script of ours; "": it has none
	Labels      []client.LabelInput // of the claim, or where the runner is there of the execution
	TimeLimit   *int
	Stdin       bool               // the program gets In
	Terminal    *terminal.Terminal // the user's own; nil: the program gets none
}

// Run does it all and returns how the program ended, or the build where that failed. Cancelling ctx cancels the
// program: Run then returns context.Canceled if it doesn't end soon. A runner that
// was claimed is released in any case.
func (j *Job) Run(ctx context.Context) (ended client.Ending, err error) {
	if j.Environment != "" {
		request := Request{Environment: j.Environment, Timeout: abandoned, Wait: runnerPatience, Labels: j.Labels, brief: true}
		if j.Runner, err = Claim(ctx, j.Err, j.Client, request); err != nil {
			return failed(ctx, err)
		}
		defer func() { err = j.release(err) }()
	}
	if err := j.upload(ctx); err != nil {
		return failed(ctx, err)
	}
	if len(j.Build) > 0 {
		if ended, err := j.build(ctx); err != nil || ended.Outcome != runtime.OutcomeExited || ended.ExitCode == nil || *ended.ExitCode != 0 {
			return ended, err
		}
	}
	ctx, interrupt := context.WithCancel(ctx)
	defer interrupt()
	if j.Terminal != nil {
		if err := j.Terminal.MakeRaw(ctx); err != nil {
			return client.Ending{}, err
		}
		defer j.Terminal.Restore()
		j.newline = "\r\n"
	}
	if err := j.start(ctx); err != nil {
		return failed(ctx, err)
	}
	following, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	stopCancelling := context.AfterFunc(ctx, func() {
		j.cancel()
		time.AfterFunc(cancelPatience, end)
	})
	defer stopCancelling()
	if j.Stdin || j.Terminal != nil {
		go j.Terminal.Guard(func() { j.feed(following, interrupt) }) // ends with the program, or with ours: a read can't be interrupted
	}
	if j.Terminal != nil {
		go j.Terminal.Guard(func() { j.resize(following) })
	}
	if ended, err = j.Follow(following); err != nil {
		return failed(ctx, err)
	}
	return ended, nil
}

// build runs the build in the runner. The program's time limit isn't the build's.
func (j *Job) build(ctx context.Context) (client.Ending, error) {
	of := Job{Follower: Follower{Out: j.Err, Err: j.Err, Client: j.Client}, Runner: j.Runner, Command: j.Build, Directory: j.Directory}
	ended, err := of.Run(ctx)
	j.Tail = of.Tail
	return ended, err
}

func failed(ctx context.Context, err error) (client.Ending, error) {
	if ctx.Err() != nil {
		err = context.Canceled // what a cancelled call says is no news
	}
	return client.Ending{}, err
}

func (j *Job) upload(ctx context.Context) error {
	if len(j.Files) == 0 {
		return nil
	}
	out, err := client.UpdateFiles(ctx, j.persistent(), client.UpdateFilesInput{RunnerId: j.Runner, Write: j.Files})
	if err == nil && len(out.UpdateFiles.Failed) > 0 {
		failed := out.UpdateFiles.Failed[0]
		return fmt.Errorf("upload %s: %s", failed.Path, failed.Message)
	}
	return err
}

// persistent returns a Sender that repeats operations while the connection is broken.
func (j *Job) persistent() client.Sender { return connection.Persistent(j.Client) }

func (j *Job) start(ctx context.Context) (err error) {
	input := client.StartExecutionInput{RunnerId: j.Runner, Command: j.Command, TimeLimit: j.TimeLimit, Stdin: &j.Stdin, IdempotencyKey: new(uuid.NewString())}
	input.CommandLine = j.Shown()
	if j.Directory != "" {
		input.WorkingDirectory = &j.Directory
	}
	if j.Environment == "" {
		input.Labels = j.Labels
	}
	if j.Terminal != nil {
		j.Terminal.Describe(&input)
	}
	j.Execution, err = client.Start(ctx, j.persistent(), input)
	return err
}

// Shown returns what the server is to show as the command line; nil: it can make that of the
// command, or can't take what the user typed.
func (j *Job) Shown() *string {
	line := j.CommandLine
	if line == "" && j.Terminal != nil { // which may put a script before the command
		line = runtime.Execution{Command: j.Command}.CommandLine()
	}
	if line == "" || runtime.ValidateCommandLine(line) != nil {
		return nil
	}
	return &line
}

// resize gives the program's terminal the size of the user's, whenever that
// changes.
func (j *Job) resize(ctx context.Context) {
	j.Terminal.Watch(ctx, func(columns, rows int) {
		input := client.ResizeTerminalInput{ExecutionId: j.Execution, Columns: columns, Rows: rows}
		_, _ = client.ResizeTerminal(ctx, j.persistent(), input) // it may have ended meanwhile
	})
}

func (j *Job) cancel() {
	ctx, end := context.WithTimeout(context.Background(), goodbye)
	defer end()
	_ = client.Cancel(ctx, j.Client, j.Execution) // its end, or none, is seen by follow
}

// release releases the runner. It returns the error with which the job ends, which says what becomes of the runner where the
// server is lost.
func (j *Job) release(ends error) error {
	ctx, end := context.WithTimeout(context.Background(), goodbye)
	defer end()
	err := release(ctx, j.Client, j.Runner)
	var lost *connection.LostError
	switch {
	case err == nil:
	case errors.As(ends, &lost):
		return fmt.Errorf("%w; its runner goes by itself %d s later", ends, abandoned)
	default:
		j.Say("the runner could not be released, and goes by itself in %d s: %s", abandoned, connection.Cause(err))
	}
	return ends
}
