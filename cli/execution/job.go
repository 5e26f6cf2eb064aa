// Package execution runs programs on a server. It claims a runner, starts the program, connects it
// to the local input and output, and follows it until it ends. It reconnects after broken
// connections.
package execution

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

// Timeouts.
const (
	runnerPatience = 30 * time.Second       // of the wait for a runner
	quietPeriod    = 300 * time.Millisecond // before a command reports that it waits
	cancelPatience = 3 * time.Second        // of the wait for a cancelled program to end
	cleanupTimeout = 5 * time.Second        // of the last calls
	abandoned      = command.Lease          // seconds without use after which the server releases the runner
)

// A Job is one run of a program on a server, from claim to release. Every call has an idempotency
// key or an offset, so it can be repeated safely if the connection breaks before the response. Use
// a Job once.
type Job struct {
	Follower
	In          io.Reader
	Environment string // claim a runner of it, and release it; if empty, use Runner, and keep it
	Runner      string
	Files       []client.FileInput
	Protected   bool     // the files are: programs can't change them
	Build       []string // command to run first; its output goes to Err. Empty means none
	Command     []string
	Directory   string // working directory of both; empty for the image's
	CommandLine string // to show instead of Command, if that contains a script of ours
	Variables   []client.VariableInput
	Labels      []client.LabelInput // of the claim, or with Runner of the execution
	TimeLimit   *int
	Stdin       bool             // pass In to the program
	Terminal    *output.Terminal // the user's terminal, or nil to give the program none
}

// Run runs the job and returns how the program ended, or how the build ended if that failed.
// Cancelling ctx cancels the program. If the program doesn't end within cancelPatience after that,
// Run returns context.Canceled. Run always releases a runner that it claimed.
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
	// Following outlives ctx for at most cancelPatience, so that the user sees how the cancelled
	// program ended.
	following, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	stopCancelling := context.AfterFunc(ctx, func() {
		j.cancel()
		time.AfterFunc(cancelPatience, end)
	})
	defer stopCancelling()
	go command.KeepLease(following, j.Client, j.Execution)
	if j.Stdin || j.Terminal != nil {
		go j.Terminal.Guard(func() { j.feed(following, interrupt) }) // ends with the program, or with this process: a read can't be interrupted
	}
	if j.Terminal != nil {
		go j.Terminal.Guard(func() { j.resize(following) })
	}
	if ended, err = j.Follow(following); err != nil {
		j.cancel() // nobody reads its output
		return failed(ctx, err)
	}
	return ended, nil
}

// build runs the build in the runner. The program's time limit doesn't apply to it.
func (j *Job) build(ctx context.Context) (client.Ending, error) {
	of := Job{Follower: Follower{Out: j.Err, Err: j.Err, Client: j.Client}, Runner: j.Runner, Command: j.Build, Variables: j.Variables, Directory: j.Directory}
	return of.Run(ctx)
}

// failed returns err without an ending, or context.Canceled if ctx has ended.
func failed(ctx context.Context, err error) (client.Ending, error) {
	if ctx.Err() != nil {
		err = context.Canceled // the error of a cancelled call says nothing new
	}
	return client.Ending{}, err
}

// upload writes all files to the runner in one call. It is an error if one couldn't be written.
func (j *Job) upload(ctx context.Context) error {
	if len(j.Files) == 0 {
		return nil
	}
	out, err := client.UpdateFiles(ctx, j.persistent(), client.UpdateFilesInput{RunnerId: j.Runner, Write: j.Files, Protected: &j.Protected})
	if err == nil && len(out.UpdateFiles.Failed) > 0 {
		failed := out.UpdateFiles.Failed[0]
		return fmt.Errorf("upload %s: %s", failed.Path, failed.Message)
	}
	if client.CodeOf(err) == runtime.CodeLimitExceeded {
		largest := slices.MaxFunc(j.Files, func(a, b client.FileInput) int { return cmp.Compare(len(a.Base64), len(b.Base64)) })
		return &TooLargeError{largest.Path, len(largest.Base64), err}
	}
	return err
}

// A TooLargeError is the error for files that together are too large for a run.
type TooLargeError struct {
	Path string // the largest one
	Size int    // bytes of it
	err  error  // the server's
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("upload %s, of %d bytes: %s. Files that are uploaded with a run are sent in one request, as base64; for larger ones claim a runner and use `rockpool runner cp`",
		e.Path, e.Size, e.err)
}

// Unwrap returns the server's error.
func (e *TooLargeError) Unwrap() error { return e.err }

// persistent returns a Sender that retries operations while the connection is broken.
func (j *Job) persistent() client.Sender { return command.Persistent(j.Client) }

// start starts the program and sets j.Execution. Its idempotency key makes it safe to repeat.
func (j *Job) start(ctx context.Context) (err error) {
	input := client.StartExecutionInput{RunnerId: j.Runner, Command: j.Command, Variables: j.Variables, TimeLimit: j.TimeLimit, Stdin: &j.Stdin, Lease: new(command.Lease), IdempotencyKey: new(uuid.NewString())}
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

// Shown returns the command line that the server should show. With nil, the server derives it from the
// command, or what the user typed isn't valid as a command line.
func (j *Job) Shown() *string {
	line := j.CommandLine
	if line == "" && j.Terminal != nil { // Describe may put a script before the command
		line = runtime.Execution{Command: j.Command}.CommandLine()
	}
	if line == "" || runtime.ValidateCommandLine(line) != nil {
		return nil
	}
	return &line
}

// resize keeps the program's terminal at the size of the user's.
func (j *Job) resize(ctx context.Context) {
	j.Terminal.Watch(ctx, func(columns, rows int) {
		input := client.ResizeTerminalInput{ExecutionId: j.Execution, Columns: columns, Rows: rows}
		_, _ = client.ResizeTerminal(ctx, j.persistent(), input) // the program may have ended meanwhile
	})
}

// cancel cancels the program. It uses its own context, since the job's context has already ended.
func (j *Job) cancel() {
	ctx, end := context.WithTimeout(context.Background(), cleanupTimeout)
	defer end()
	_ = client.Cancel(ctx, j.Client, j.Execution) // Follow sees the result
}

// release releases the runner. It returns ends, the error of the job. If the server is lost, it
// adds when the server will release the runner.
func (j *Job) release(ends error) error {
	ctx, end := context.WithTimeout(context.Background(), cleanupTimeout)
	defer end()
	err := client.Release(ctx, j.Client, j.Runner)
	switch {
	case err == nil, client.CodeOf(err) == runtime.CodeRunnerGone:
	case errors.As(ends, new(*command.LostError)):
		return fmt.Errorf("%w; the server releases the runner %d s later", ends, abandoned)
	default:
		j.Report("the runner couldn't be released; the server releases it in %d s: %s", abandoned, command.Cause(err))
	}
	return ends
}

// typedAhead is the number of pieces that are buffered while the program doesn't read.
const typedAhead = 64

// ctrlC is the byte that a terminal in raw mode sends for Ctrl-C.
const ctrlC = 3

// feed copies standard input to the program until either ends. While the connection is broken,
// Ctrl-C on a terminal can't reach the program: feed then calls interrupt instead.
func (j *Job) feed(ctx context.Context, interrupt func()) {
	pieces := make(chan []byte, typedAhead)
	var failed error // read after pieces is closed
	go j.Terminal.Guard(func() {
		defer close(pieces)
		failed = j.read(ctx, pieces, interrupt)
	})
	offset := int64(0)
	for piece := range pieces {
		if !j.send(ctx, client.WriteStdinInput{Base64: piece, Offset: &offset}) {
			return
		}
		offset += int64(len(piece))
	}
	switch {
	case ctx.Err() != nil:
	case j.Terminal != nil:
		interrupt() // the terminal is gone, and no SIGHUP came
	case errors.Is(failed, io.EOF):
		j.send(ctx, client.WriteStdinInput{Close: new(true), Offset: &offset})
	default:
		j.Report("standard input can't be read: %v", failed)
	}
}

// read passes standard input to pieces, until it ends or ctx is cancelled. It always returns an
// error: io.EOF at the end of the input.
func (j *Job) read(ctx context.Context, pieces chan<- []byte, interrupt func()) error {
	for {
		buffer := make([]byte, 32<<10)
		n, err := j.In.Read(buffer)
		if n > 0 {
			if j.Terminal != nil && j.lost.Load() && bytes.IndexByte(buffer[:n], ctrlC) >= 0 {
				interrupt()
			}
			select {
			case pieces <- buffer[:n]:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err != nil {
			return err
		}
	}
}

// send sends a piece of standard input. It retries while the program doesn't read or the server is
// unreachable. It returns false when the program no longer accepts input.
func (j *Job) send(ctx context.Context, input client.WriteStdinInput) bool {
	input.ExecutionId = j.Execution
	for {
		_, err := client.WriteStdin(ctx, j.persistent(), input)
		if client.CodeOf(err) == runtime.CodeLimitExceeded {
			continue // the program doesn't read at the moment; the offset makes retrying safe
		}
		return err == nil
	}
}
