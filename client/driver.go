package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rockpool/rockpool/runtime"
)

// Put creates or changes an environment. Fields that are nil keep their stored values.
func Put(ctx context.Context, c Sender, input PutEnvironmentInput) error {
	_, err := PutEnvironment(ctx, c, input)
	return err
}

// Delete deletes an environment and all its runners, including claimed ones. A missing
// environment is no error.
func Delete(ctx context.Context, c Sender, environment string) error {
	_, err := DeleteEnvironment(ctx, c, DeleteEnvironmentInput{Id: environment, EndClaimed: new(true)})
	return err
}

// Claim claims a runner and returns its id.
func Claim(ctx context.Context, c Sender, input ClaimRunnerInput) (runner string, err error) {
	runner, _, err = ClaimOrResume(ctx, c, input)
	return runner, err
}

// ClaimOrResume claims a runner and returns its id. resumed reports whether the input's holder
// held this runner already.
func ClaimOrResume(ctx context.Context, c Sender, input ClaimRunnerInput) (runner string, resumed bool, err error) {
	out, err := ClaimRunner(ctx, c, input)
	if err != nil {
		return "", false, err
	}
	if out.ClaimRunner.Runner == nil {
		return "", false, errors.New("the server returned a ticket instead of a runner: leave out the field wait")
	}
	return out.ClaimRunner.Runner.Id, out.ClaimRunner.Resumed, nil
}

// Release ends a claimed runner and everything that runs in it. A missing runner is no error.
func Release(ctx context.Context, c Sender, runner string) error {
	_, err := ReleaseRunner(ctx, c, runner)
	return err
}

// Start starts a command in a runner and returns the execution's id.
func Start(ctx context.Context, c Sender, input StartExecutionInput) (execution string, err error) {
	out, err := StartExecution(ctx, c, input)
	if err != nil {
		return "", err
	}
	return out.StartExecution.Execution.Id, nil
}

// Cancel ends an execution and all its processes. A finished execution is no error.
func Cancel(ctx context.Context, c Sender, execution string) error {
	_, err := CancelExecution(ctx, c, execution)
	return err
}

const (
	awaitSeconds = 45      // how long one request waits for the end of an execution; many proxies wait 60 s
	awaitBytes   = 1 << 20 // most bytes of output in a Result
)

// Await waits until an execution or ctx has ended. It returns the errors of [Client.Do]; wrap the
// Sender with [Client.Around] to retry.
func Await(ctx context.Context, c Sender, execution string) (Ending, error) {
	for {
		out, err := GetEnding(ctx, c, execution, awaitSeconds)
		if err != nil {
			return Ending{}, err
		}
		if out.Execution.State == runtime.ExecutionFinished {
			return out.Execution.Ending, nil
		}
	}
}

// AwaitResult waits like [Await] and also returns the first MiB of the output.
func AwaitResult(ctx context.Context, c Sender, execution string) (Result, error) {
	for {
		out, err := GetResult(ctx, c, execution, awaitSeconds, awaitBytes)
		if err != nil {
			return Result{}, err
		}
		if out.Execution.State == runtime.ExecutionFinished {
			return out.Execution, nil
		}
	}
}

// Run starts a command in a runner and waits for its result, like [Start] and [AwaitResult].
func Run(ctx context.Context, c Sender, input StartExecutionInput) (Result, error) {
	execution, err := Start(ctx, c, input)
	if err != nil {
		return Result{}, err
	}
	return AwaitResult(ctx, c, execution)
}

// String returns the outcome and its detail, for example "EXITED 0".
func (e Ending) String() string {
	switch {
	case e.ExitCode != nil:
		return fmt.Sprintf("%s %d", e.Outcome, *e.ExitCode)
	case e.GoneReason != "":
		return fmt.Sprintf("%s %s", e.Outcome, e.GoneReason)
	case e.Signal != "":
		return fmt.Sprintf("%s %s", e.Outcome, e.Signal)
	}
	return string(e.Outcome)
}

// Stream returns the output of one stream.
func (r Result) Stream(stream OutputStream) string {
	var all []byte
	for _, chunk := range r.Output.Chunks {
		if chunk.Stream == stream {
			all = append(all, chunk.Base64...)
		}
	}
	return string(all)
}

// Text returns the output of both streams in the order in which it was printed.
func (r Result) Text() string {
	var text strings.Builder
	for _, chunk := range r.Output.Chunks {
		text.WriteString(chunk.Text)
	}
	return text.String()
}

// String returns Text followed by the outcome on a separate line.
func (r Result) String() string {
	text := r.Text()
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + "=> " + r.Ending.String()
}

// An Event is one event of an execution. Fields that its Type lacks are zero.
type Event struct {
	Type      string `json:"__typename"` // ExecutionStarted, ExecutionOutput, ExecutionOutputLost, ExecutionResized or ExecutionFinished
	Cursor    string // Follow continues after it
	Stream    OutputStream
	Base64    []byte // of output
	Bytes     int64  // of lost output
	Reason    string // why output is lost
	Execution Ending // of ExecutionFinished

	JSON json.RawMessage `json:"-"` // the event as the server sent it
}

// Follow subscribes to an execution's events after a cursor (nil for the first event on), and
// passes each event to handle. It returns as [Client.Subscribe] does. After a broken connection,
// call it again with the last event's cursor: no byte is missing or repeated.
func (c *Client) Follow(ctx context.Context, execution string, after *string, handle func(Event) error) error {
	operation := Request{executionEvents_Operation, map[string]any{"id": execution, "after": after}}
	return follow(ctx, c, operation, func(event Event, raw json.RawMessage) error {
		event.JSON = raw
		return handle(event)
	})
}

// UploadFile writes a file into a runner. mode is its permission bits in octal, "" for the API's
// default. Programs can't change a protected file. size, content and errors are those of
// [Client.Upload].
func (c *Client) UploadFile(ctx context.Context, runner, path, mode string, protected bool, size int64, content io.Reader) error {
	variables := map[string]any{"runner": runner, "path": path, "protected": protected}
	if mode != "" {
		variables["mode"] = mode
	}
	return c.Upload(ctx, uploadFile_Operation, variables, size, content, nil)
}
