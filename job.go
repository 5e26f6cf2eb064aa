package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/rockpool/rockpool/runtime"
)

// How long a job waits, and for what.
const (
	runnerPatience = 30 * time.Second       // for a runner
	silence        = 300 * time.Millisecond // before it says that it waits
	serverPatience = time.Minute            // for a server that can't be reached any more
	cancelPatience = 3 * time.Second        // for the end of what was cancelled
	goodbye        = 5 * time.Second        // for the last calls
	abandoned      = 60                     // seconds after which the server releases a runner that nobody uses
)

// A job is one program's run on a server, from claim to release. Every call
// has a key or an offset, so that it is safe to repeat where the connection
// broke before the answer came.
type job struct {
	streams
	client      *client
	environment string
	files       []upload
	command     []string
	timeLimit   *int
	stdin       bool

	runner    string
	execution string
}

// run does it all and returns what to exit with. Cancelling ctx cancels the
// program; the runner is released in any case.
func (j *job) run(ctx context.Context) (int, error) {
	if err := j.claim(ctx); err != nil {
		return j.failed(ctx, err)
	}
	defer j.release()
	if err := j.upload(ctx); err != nil {
		return j.failed(ctx, err)
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
	if j.stdin {
		go j.feed(following) // ends with the program, or with ours: a read can't be interrupted
	}
	ended, err := j.follow(following)
	if err != nil {
		return j.failed(ctx, err)
	}
	code, words := ended.exitCode()
	if words != "" {
		return code, errors.New(words)
	}
	return code, nil
}

func (j *job) failed(ctx context.Context, err error) (int, error) {
	if ctx.Err() != nil {
		return codeInterrupted, nil // what a cancelled call says is no news
	}
	return codeOurs, err
}

// claim gets a runner, and says what it waits for if that takes a while.
func (j *job) claim(ctx context.Context) error {
	const mutation = `mutation($in: ClaimRunnerInput!) { claimRunner(input: $in) { runner { id } } }`
	input := map[string]any{"environmentId": j.environment, "waitFor": int(runnerPatience / time.Second),
		"inactivityTimeout": abandoned, "idempotencyKey": uuid.NewString()}
	var out struct {
		ClaimRunner struct{ Runner struct{ ID string } }
	}
	claimed := make(chan error, 1)
	go func() {
		absent := func(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
		err := persist(ctx, runnerPatience, func(err error) bool { return passing(err) && !absent(err) }, func() error {
			return j.client.ask(ctx, mutation, map[string]any{"in": input}, &out)
		})
		if absent(err) {
			err = fmt.Errorf("no server listens at %s: start one with `rockpool serve` (from the sources: `make run`), or name another with --server", j.client.url)
		}
		claimed <- err
	}()
	select {
	case err := <-claimed:
		j.runner = out.ClaimRunner.Runner.ID
		return err
	case <-time.After(silence):
	}
	j.explain(ctx)
	err := <-claimed
	j.runner = out.ClaimRunner.Runner.ID
	return err
}

// explain says what the claim waits for.
func (j *job) explain(ctx context.Context) {
	const query = `query($id: ID!) { environment(id: $id) { pool { starting reason } } }`
	var out struct {
		Environment *struct {
			Pool struct {
				Starting int
				Reason   string
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, goodbye)
	defer cancel()
	if err := j.client.ask(ctx, query, map[string]any{"id": j.environment}, &out); err != nil || out.Environment == nil {
		return // the claim's own error says more
	}
	why := out.Environment.Pool.Reason
	if why == "" {
		why = "all are in use"
		if out.Environment.Pool.Starting > 0 {
			why = "one is starting"
		}
	}
	_, _ = fmt.Fprintf(j.err, "rockpool: waiting for a runner of %s (%s)\n", j.environment, why)
}

func (j *job) upload(ctx context.Context) error {
	if len(j.files) == 0 {
		return nil
	}
	const mutation = `mutation($in: UpdateFilesInput!) { updateFiles(input: $in) { failed { path message } } }`
	var out struct {
		UpdateFiles struct {
			Failed []struct{ Path, Message string }
		}
	}
	input := map[string]any{"runnerId": j.runner, "write": j.files}
	err := persist(ctx, serverPatience, passing, func() error {
		return j.client.ask(ctx, mutation, map[string]any{"in": input}, &out)
	})
	if err == nil && len(out.UpdateFiles.Failed) > 0 {
		failed := out.UpdateFiles.Failed[0]
		return fmt.Errorf("upload %s: %s", failed.Path, failed.Message)
	}
	return err
}

func (j *job) start(ctx context.Context) error {
	const mutation = `mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`
	input := map[string]any{"runnerId": j.runner, "command": j.command, "timeLimit": j.timeLimit, "stdin": j.stdin, "idempotencyKey": uuid.NewString()}
	var out struct {
		StartExecution struct{ Execution struct{ ID string } }
	}
	err := persist(ctx, serverPatience, passing, func() error {
		return j.client.ask(ctx, mutation, map[string]any{"in": input}, &out)
	})
	j.execution = out.StartExecution.Execution.ID
	return err
}

// follow copies the output until the end. A broken connection is taken up again
// after the last event that arrived whole.
func (j *job) follow(ctx context.Context) (ended ending, err error) {
	const subscription = `subscription($id: ID!, $after: Cursor) { executionEvents(executionId: $id, after: $after) {
		__typename cursor
		... on ExecutionOutput { stream base64 }
		... on ExecutionOutputLost { bytes reason }
		... on ExecutionFinished { execution { outcome exitCode signal goneReason message } }
	} }`
	variables := map[string]any{"id": j.execution}
	finished, told := false, false
	var local error // what happened here, which no other connection mends
	handle := func(data json.RawMessage) error {
		var event executionEvent
		if local = event.decode(data); local == nil {
			local = event.write(j.streams)
		}
		if local != nil {
			return local
		}
		variables["after"] = event.Cursor
		if event.Type == "ExecutionFinished" {
			finished, ended = true, event.Execution
		}
		return nil
	}
	for !finished {
		before := variables["after"]
		err := persist(ctx, serverPatience, passing, func() error {
			err := j.client.subscribe(ctx, request{subscription, variables}, handle)
			switch {
			case local != nil || finished:
				return nil // how the connection ended doesn't matter any more
			case err == nil:
				return errors.New("the server ended the stream early")
			case variables["after"] != before:
				return nil // it moved on: patience begins anew
			case passing(err) && !told && ctx.Err() == nil:
				told = true
				_, _ = fmt.Fprintf(j.err, "rockpool: the connection broke; trying to take it up again for %v\n", serverPatience)
			}
			return err
		})
		switch {
		case local != nil:
			return ending{}, local
		case err != nil && passing(err):
			return ending{}, fmt.Errorf("the server can't be reached any more, and nobody knows how the program ended: %w", err)
		case err != nil:
			return ending{}, err
		}
	}
	return ended, nil
}

func (j *job) cancel() {
	ctx, end := context.WithTimeout(context.Background(), goodbye)
	defer end()
	const mutation = `mutation($id: ID!) { cancelExecution(id: $id) { execution { id } } }`
	_ = j.client.ask(ctx, mutation, map[string]any{"id": j.execution}, nil) // its end, or none, is seen by follow
}

func (j *job) release() {
	ctx, end := context.WithTimeout(context.Background(), goodbye)
	defer end()
	const mutation = `mutation($id: ID!) { releaseRunner(id: $id) { released } }`
	err := j.client.ask(ctx, mutation, map[string]any{"id": j.runner}, nil)
	var gone *apiError
	if errors.As(err, &gone) && gone.Extensions.Code == runtime.CodeRunnerGone {
		return
	}
	if err != nil {
		_, _ = fmt.Fprintf(j.err, "rockpool: the runner could not be released, and goes by itself in %d s: %v\n", abandoned, err)
	}
}
