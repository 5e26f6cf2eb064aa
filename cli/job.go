package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/rockpool/rockpool/client"
)

// How long commands wait, and for what.
const (
	runnerPatience = 30 * time.Second       // for a runner
	silence        = 300 * time.Millisecond // before a command says that it waits
	serverPatience = time.Minute            // for a server that can't be reached any more
	cancelPatience = 3 * time.Second        // for the end of what was cancelled
	goodbye        = 5 * time.Second        // for the last calls
	abandoned      = 60                     // seconds after which the server releases a runner that nobody uses
)

// A job is one program's run on a server, from claim to release. Every call
// has a key or an offset, so that it is safe to repeat where the connection
// broke before the answer came.
type job struct {
	follower
	environment string // to claim a runner of; "": runner is there, and stays
	runner      string
	files       []client.FileInput
	command     []string
	timeLimit   *int
	stdin       bool
	terminal    *terminal // the user's own; nil: the program gets none
}

// run does it all and returns what to exit with. Cancelling ctx cancels the
// program; a runner that was claimed is released in any case.
func (j *job) run(ctx context.Context) (int, error) {
	if j.environment != "" {
		runner, err := claim(ctx, j.Streams, j.client, claiming{environment: j.environment, timeout: abandoned, wait: runnerPatience, brief: true})
		if err != nil {
			return j.failed(ctx, err)
		}
		j.runner = runner
		defer j.release()
	}
	if err := j.upload(ctx); err != nil {
		return j.failed(ctx, err)
	}
	ctx, interrupt := context.WithCancel(ctx)
	defer interrupt()
	if j.terminal != nil {
		if err := j.terminal.makeRaw(ctx); err != nil {
			return CodeOurs, err
		}
		defer j.terminal.restore()
		j.newline = "\r\n"
	}
	if err := j.start(ctx); err != nil {
		return j.failed(ctx, err)
	}
	following, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	stopCancelling := context.AfterFunc(ctx, func() {
		j.cancel()
		time.AfterFunc(cancelPatience, end)
	})
	defer stopCancelling()
	if j.stdin || j.terminal != nil {
		go j.terminal.guard(func() { j.feed(following, interrupt) }) // ends with the program, or with ours: a read can't be interrupted
	}
	if j.terminal != nil {
		go j.terminal.guard(func() { j.resize(following) })
	}
	ended, err := j.follow(following)
	if err != nil {
		return j.failed(ctx, err)
	}
	code, words := exitCode(ended)
	if words != "" {
		return code, errors.New(words)
	}
	return code, nil
}

func (j *job) failed(ctx context.Context, err error) (int, error) {
	if ctx.Err() != nil {
		return CodeInterrupted, nil // what a cancelled call says is no news
	}
	return CodeOurs, err
}

func (j *job) upload(ctx context.Context) error {
	if len(j.files) == 0 {
		return nil
	}
	out, err := client.UpdateFiles(ctx, j.persistent(), client.UpdateFilesInput{RunnerId: j.runner, Write: j.files})
	if err == nil && len(out.UpdateFiles.Failed) > 0 {
		failed := out.UpdateFiles.Failed[0]
		return fmt.Errorf("upload %s: %s", failed.Path, failed.Message)
	}
	return err
}

// persistent returns a Sender that repeats operations while the connection is broken.
func (j *job) persistent() client.Sender {
	return j.client.Around(func(ctx context.Context, send func(context.Context) error) error {
		return client.Persist(ctx, serverPatience, client.Passing, func() error { return send(ctx) })
	})
}

func (j *job) start(ctx context.Context) (err error) {
	input := client.StartExecutionInput{RunnerId: j.runner, Command: j.command, TimeLimit: j.timeLimit, Stdin: &j.stdin, IdempotencyKey: new(uuid.NewString())}
	if j.terminal != nil {
		j.terminal.describe(&input)
	}
	j.execution, err = client.Start(ctx, j.persistent(), input)
	return err
}

// resize gives the program's terminal the size of the user's, whenever that
// changes.
func (j *job) resize(ctx context.Context) {
	j.terminal.watch(ctx, func(columns, rows int) {
		input := client.ResizeTerminalInput{ExecutionId: j.execution, Columns: columns, Rows: rows}
		_, _ = client.ResizeTerminal(ctx, j.persistent(), input) // it may have ended meanwhile
	})
}

func (j *job) cancel() {
	ctx, end := context.WithTimeout(context.Background(), goodbye)
	defer end()
	_ = client.Cancel(ctx, j.client, j.execution) // its end, or none, is seen by follow
}

func (j *job) release() {
	ctx, end := context.WithTimeout(context.Background(), goodbye)
	defer end()
	if err := release(ctx, j.client, j.runner); err != nil {
		j.say("the runner could not be released, and goes by itself in %d s: %v", abandoned, err)
	}
}
