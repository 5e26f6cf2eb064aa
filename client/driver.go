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

// Put creates an environment, or changes one: what is nil stays as it is stored.
func Put(ctx context.Context, c Sender, input PutEnvironmentInput) error {
	_, err := PutEnvironment(ctx, c, input)
	return err
}

// Delete deletes an environment with all of its runners, claimed ones too. One that
// isn't there is no error.
func Delete(ctx context.Context, c Sender, environment string) error {
	_, err := DeleteEnvironment(ctx, c, DeleteEnvironmentInput{Id: environment, EndClaimed: new(true)})
	return err
}

// Claim claims a runner, and returns its id.
func Claim(ctx context.Context, c Sender, input ClaimRunnerInput) (runner string, err error) {
	runner, _, err = ClaimOrResume(ctx, c, input)
	return runner, err
}

// ClaimOrResume claims a runner, and returns its id, and whether the input's holder has had it before.
func ClaimOrResume(ctx context.Context, c Sender, input ClaimRunnerInput) (runner string, resumed bool, err error) {
	out, err := ClaimRunner(ctx, c, input)
	if err != nil {
		return "", false, err
	}
	if out.ClaimRunner.Runner == nil {
		return "", false, errors.New("the answer has a ticket, and no runner yet: leave out wait")
	}
	return out.ClaimRunner.Runner.Id, out.ClaimRunner.Resumed, nil
}

// Release ends a claimed runner with all that runs in it.
func Release(ctx context.Context, c Sender, runner string) error {
	_, err := ReleaseRunner(ctx, c, runner)
	return err
}

// Start starts a command in a runner, and returns its execution's id.
func Start(ctx context.Context, c Sender, input StartExecutionInput) (execution string, err error) {
	out, err := StartExecution(ctx, c, input)
	if err != nil {
		return "", err
	}
	return out.StartExecution.Execution.Id, nil
}

// Cancel ends an execution with all processes that it started. One that has ended is
// no error.
func Cancel(ctx context.Context, c Sender, execution string) error {
	_, err := CancelExecution(ctx, c, execution)
	return err
}

const (
	awaitSeconds = 60      // that one request waits for an execution's end
	awaitBytes   = 1 << 20 // of output in a Result
)

// Await waits until an execution has ended, or ctx has.
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

// AwaitResult waits as Await does, and returns the end with the first MiB of the output.
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

// Run starts a command in a runner, and waits for its result.
func Run(ctx context.Context, c Sender, input StartExecutionInput) (Result, error) {
	execution, err := Start(ctx, c, input)
	if err != nil {
		return Result{}, err
	}
	return AwaitResult(ctx, c, execution)
}

// String is the outcome with its detail, for example "EXITED 0".
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

// Stream returns the bytes of one stream.
func (r Result) Stream(stream OutputStream) string {
	var all []byte
	for _, chunk := range r.Output.Chunks {
		if chunk.Stream == stream {
			all = append(all, chunk.Base64...)
		}
	}
	return string(all)
}

// Text returns both streams, in the order in which they were printed.
func (r Result) Text() string {
	var text strings.Builder
	for _, chunk := range r.Output.Chunks {
		text.WriteString(chunk.Text)
	}
	return text.String()
}

// String is the text with the end on a line of its own.
func (r Result) String() string {
	text := r.Text()
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + "=> " + r.Ending.String()
}

// An Event is what happened to an execution. Fields that its type doesn't have are zero.
type Event struct {
	Type      string `json:"__typename"` // ExecutionStarted, ExecutionOutput, ExecutionOutputLost, ExecutionResized or ExecutionFinished
	Cursor    string // to follow on from
	Stream    OutputStream
	Base64    []byte // of output
	Bytes     int64  // of lost output
	Reason    string // why they are lost
	Execution Ending // of ExecutionFinished

	JSON json.RawMessage `json:"-"` // the event as it came
}

// Follow subscribes to an execution's events after a cursor (nil: all), and passes each to
// handle. It returns as [Client.Subscribe] does; a caller whose connection broke follows on
// from the last cursor, and misses nothing.
func (c *Client) Follow(ctx context.Context, execution string, after *string, handle func(Event) error) error {
	operation := Request{executionEvents_Operation, map[string]any{"id": execution, "after": after}}
	return c.Subscribe(ctx, operation, func(data json.RawMessage) error {
		var out struct{ ExecutionEvents json.RawMessage }
		var event Event
		err := json.Unmarshal(data, &out)
		if err == nil {
			err = json.Unmarshal(out.ExecutionEvents, &event)
		}
		if err != nil {
			return &Error{Message: "read an event: " + err.Error()} // another connection doesn't help
		}
		event.JSON = out.ExecutionEvents
		return handle(event)
	})
}

// UploadFile writes a file into a runner, with octal permission bits or, where mode is "", the
// API's default. Size, content and errors are those of [Client.Upload].
func (c *Client) UploadFile(ctx context.Context, runner, path, mode string, size int64, content io.Reader) error {
	variables := map[string]any{"runner": runner, "path": path}
	if mode != "" {
		variables["mode"] = mode
	}
	return c.Upload(ctx, uploadFile_Operation, variables, size, content, nil)
}
