package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/files"
	requests "github.com/rockpool/rockpool/runtime/request"
)

// A runInput has the arguments of run_program.
type runInput struct {
	choice
	program
}

// An executeInput has the arguments of execute.
type executeInput struct {
	Session  string `json:"session" jsonschema:"of open_session"`
	Language string `json:"language,omitempty" jsonschema:"of source; without it, the session's"`
	program
}

// ran is the result of a program.
type ran struct {
	Execution    string          `json:"execution" jsonschema:"the execution's id, for read_output"`
	Phase        string          `json:"phase" jsonschema:"run; or build, if the build failed and nothing was run"`
	Running      bool            `json:"running,omitempty" jsonschema:"the program still runs, and has no outcome yet: call read_output with execution and cursor, which waits for more output and for the end"`
	Session      string          `json:"session,omitempty" jsonschema:"with running, of run_program: the session with the program's files; call close_session when it isn't needed any longer"`
	Outcome      runtime.Outcome `json:"outcome,omitempty" jsonschema:"how it ended: EXITED, SIGNALED, TIME_LIMIT, CPU_LIMIT, MEMORY_LIMIT, PROCESS_LIMIT, OUTPUT_LIMIT, CANCELLED, RUNNER_GONE, LOST or FAILED"`
	ExitCode     *int            `json:"exitCode,omitempty" jsonschema:"with EXITED; with FAILED 127 or 126, if the program doesn't exist or isn't executable"`
	Signal       string          `json:"signal,omitempty" jsonschema:"with SIGNALED"`
	Message      string          `json:"message,omitempty" jsonschema:"a description of the outcome and its cause"`
	Hint         string          `json:"hint,omitempty" jsonschema:"what may have gone wrong"`
	Seconds      float64         `json:"seconds" jsonschema:"how long it ran"`
	MemoryBytes  int64           `json:"memoryBytes,omitempty" jsonschema:"its peak memory"`
	Stdout       string          `json:"stdout" jsonschema:"cut in the middle if it is long"`
	Stderr       string          `json:"stderr" jsonschema:"cut in the middle if it is long"`
	StdoutBase64 string          `json:"stdoutBase64,omitempty" jsonschema:"the exact bytes, if stdout isn't UTF-8"`
	StderrBase64 string          `json:"stderrBase64,omitempty" jsonschema:"the exact bytes, if stderr isn't UTF-8"`
	OmittedBytes int             `json:"omittedBytes,omitempty" jsonschema:"how many bytes of output are missing from this result"`
	Cursor       string          `json:"cursor,omitempty" jsonschema:"for read_output, to read the missing output"`
	LostBytes    int64           `json:"lostBytes,omitempty" jsonschema:"how many bytes of output were not kept"`
	LostReason   string          `json:"lostReason,omitempty"`
	Files        []madeFile      `json:"files,omitempty" jsonschema:"files that the program created or changed; run_program only"`
	FilesNote    string          `json:"filesNote,omitempty" jsonschema:"what is missing from files, and why"`
}

// running are the tools that run programs.
func running() []tool {
	open := sdk.ToolAnnotations{OpenWorldHint: new(true)} // an environment may have network access
	return []tool{
		define("run_program", "Run a program",
			"Runs one program in a fresh isolated runner and returns its output, how it ended, and the files that it created. Use language and source, or environment and command or shell. The runner is deleted afterwards.",
			open, boundProgram, runProgram),
		define("execute", "Execute in a session",
			"Runs a program or a command in a session's runner, which keeps its files. Use shell, command, or source with its language.",
			sdk.ToolAnnotations{OpenWorldHint: new(true), DestructiveHint: new(true)}, boundProgram, execute),
	}
}

// runProgram serves run_program. It checks the arguments before it claims a runner, and drops the
// runner when it returns.
func runProgram(c *call, in runInput) (out ran, reply answer, err error) {
	environment, recipe, err := c.choose(in.choice)
	if err != nil {
		return out, reply, err
	}
	what, err := in.plan(recipe)
	if err != nil {
		return out, reply, err
	}
	runner, err := c.claim(environment, nil)
	if err != nil {
		return out, reply, err
	}
	defer func() {
		if !out.Running { // else its files are still needed
			c.drop(runner.ID)
		}
	}()
	if err := c.fill(runner.ID, what.files); err != nil {
		return out, reply, err
	}
	out, built, err := c.build(runner.ID, what)
	if err != nil {
		return out, reply, err
	}
	// The snapshot follows the input files and the build: the result lists only files that the program
	// itself changed.
	var before map[string]version
	if built {
		if before, err = c.snapshot(runner.ID); err != nil {
			return out, reply, err
		}
		if out, err = c.runBuilt(runner.ID, what); err != nil {
			return out, reply, err
		}
	}
	switch {
	case out.Running:
		out.Session = string(runner.ID)
	case built && out.Outcome != runtime.OutcomeRunnerGone:
		reply.images = c.collect(runner.ID, before, &out)
	}
	return out, out.answer(reply.images), nil
}

// execute serves execute. The session's runner determines the environment, and keeps its files
// afterwards.
func execute(c *call, in executeInput) (out ran, reply answer, err error) {
	runner, err := c.sessionRunner(in.Session)
	if err != nil {
		return out, reply, err
	}
	_, recipe, err := c.choose(choice{Language: in.Language, Environment: string(runner.Environment.ID)})
	if err != nil {
		return out, reply, err
	}
	what, err := in.plan(recipe)
	if err != nil {
		return out, reply, err
	}
	if err := c.fill(runner.ID, what.files); err != nil {
		return out, reply, err
	}
	out, built, err := c.build(runner.ID, what)
	if err == nil && built {
		out, err = c.runBuilt(runner.ID, what)
	}
	return out, out.answer(nil), err
}

func (c *call) claim(environment runtime.EnvironmentID, inactivity *int) (runtime.Runner, error) {
	c.progress.notify(c.ctx, "claiming a runner of "+string(environment))
	runner, err := c.api.services.Engine.Runners.Claim(c.ctx, requests.Claim{EnvironmentID: environment, InactivityTimeout: inactivity, WaitFor: new(maxWait), Caller: clients.PeerName(c.ctx)})
	if err != nil {
		return runner, err
	}
	return runner, c.keep(runner.ID)
}

// keep adds a runner to the session. If the call was cancelled it releases the runner instead,
// since the agent wouldn't get its id.
func (c *call) keep(id runtime.RunnerID) error {
	if err := c.hold(id); err != nil {
		return err
	}
	if c.ctx.Err() != nil {
		c.drop(id)
		return context.Cause(c.ctx)
	}
	return nil
}

// fill writes files. The error names the first one that couldn't be written.
func (c *call) fill(id runtime.RunnerID, write []runtime.FileWrite) error {
	if len(write) == 0 {
		return nil
	}
	updated, err := c.api.services.Engine.Files.Update(c.ctx, id, "files", files.Update{Write: write})
	if err == nil && len(updated.Failed) > 0 {
		err = runtime.Errorf(runtime.CodeStorageFull, "%s: %s", updated.Failed[0].Path, updated.Failed[0].Message)
	}
	return err
}

// build builds a program if its language needs that. It reports whether the program can run; if it
// can't, out is the result.
func (c *call) build(id runtime.RunnerID, what plan) (out ran, built bool, err error) {
	if what.build == nil {
		return out, true, nil
	}
	out, err = c.run(id, requests.Start{Command: what.build, TimeLimit: what.limit}, nil)
	if out.Phase = "build"; out.Running {
		command, _ := json.Marshal(what.start.Command)
		out.Message = fmt.Sprintf("when the build has ended, run the program: call execute with the session, the command %s, and the stdin, variables and timeLimit of this call", command)
	}
	return out, err == nil && out.ExitCode != nil && *out.ExitCode == 0, err
}

// runBuilt runs a program that was built if its language needs that.
func (c *call) runBuilt(id runtime.RunnerID, what plan) (ran, error) {
	out, err := c.run(id, what.start, what.stdin)
	out.Phase = "run"
	return out, err
}

// run runs one command, and reports its output as progress meanwhile. If the command still runs when
// the call must answer, it continues. It is cancelled if the call is.
func (c *call) run(id runtime.RunnerID, in requests.Start, stdin *string) (out ran, err error) {
	var input []byte
	if stdin != nil {
		if err := c.request.grow(int64(len(*stdin))); err != nil {
			return ran{}, err
		}
		input = []byte(*stdin)
	}
	in.RunnerID = id
	x, err := c.api.services.Engine.Executions.Start(c.ctx, in)
	if err != nil {
		return ran{}, named(err, in.Variables)
	}
	cancelled := make(chan struct{})
	cancel := func() {
		defer close(cancelled)
		_, _ = c.api.services.Engine.Executions.Cancel(context.WithoutCancel(c.ctx), x.ID) // fails if it has ended
	}
	stop := context.AfterFunc(c.ctx, cancel) // not after the call, which a client that doesn't read may block
	// If the call has ended, wait for the cancellation that has begun. After another error, cancel.
	defer func() {
		switch {
		case !stop():
			<-cancelled
		case err != nil:
			cancel()
		}
	}()
	// Standard input is fed while output is read: a command may need both.
	feeding, fed := context.WithCancel(c.session.ctx) // a command that continues needs it
	defer func() {
		if !out.Running || stdin == nil {
			fed()
		}
	}()
	if stdin != nil {
		if err := c.api.services.Engine.Go(feeding, func(ctx context.Context) { defer fed(); c.feed(ctx, x.ID, input) }); err != nil {
			return ran{}, err
		}
	}
	c.progress.notify(c.ctx, "execution "+string(x.ID)+" has started")
	began := time.Now()
	ended, output, err := c.follow(x.ID)
	if errors.Is(err, errRunning) {
		// The request's memory is released, but the rest of the input is still needed.
		if stdin != nil && feeding.Err() == nil {
			kept, err := c.api.services.Memory.Keep(access.FromContext(c.ctx).Tenant, int64(len(*stdin)), "the standard input of a program that outlasts its call")
			if err != nil {
				return ran{}, err
			}
			context.AfterFunc(feeding, kept.Free)
		}
		out = report(x, output)
		out.Running, out.Seconds, out.Cursor = true, time.Since(began).Seconds(), cmp.Or(out.Cursor, output.at)
		return out, nil
	}
	if err != nil {
		return ran{}, err
	}
	return report(ended, output), nil
}

// feed writes all of a command's standard input.
func (c *call) feed(ctx context.Context, id runtime.ExecutionID, data []byte) {
	in := requests.Stdin{ExecutionID: id, Data: data, Offset: new(int64(0)), Close: true}
	for ctx.Err() == nil {
		if _, err := c.api.services.Engine.Executions.WriteStdin(ctx, in); runtime.CodeOf(err) != runtime.CodeLimitExceeded {
			return // everything was written, or the command has ended
		}
	}
}

// errRunning says that a call must answer before its program has ended.
var errRunning = errors.New("the program still runs")

// follow reads an execution's events to its end. It returns errRunning if the call must answer
// earlier.
func (c *call) follow(id runtime.ExecutionID) (runtime.Execution, *outputParts, error) {
	output := newPrinted()
	reader, err := c.api.services.Engine.Executions.Events(c.ctx, id, "")
	if err != nil {
		return runtime.Execution{}, output, err
	}
	defer reader.Close()
	output.at = reader.At()
	ctx, cancel := context.WithDeadline(c.ctx, c.until)
	defer cancel()
	for {
		event, err := c.event(ctx, reader)
		if err != nil {
			return runtime.Execution{}, output, err
		}
		switch event.Kind {
		case events.Finished:
			return event.Execution, output, nil
		case events.Started:
			output.at = event.Cursor
		case events.Output, events.Lost:
			if c.progress.wanted() {
				c.progress.output(event.Text())
			}
			output.add(event)
		}
	}
}

// event waits for the next event, and sends progress meanwhile. It returns errRunning when the call
// must answer, which is when ctx ends before the call does.
func (c *call) event(ctx context.Context, reader *events.Reader) (event events.Event, err error) {
	for {
		waiting, cancel := ctx, func() {}
		if c.progress.wanted() {
			due := c.progress.due(time.Now())
			if due == 0 {
				c.progress.notify(c.ctx, "it runs")
				continue
			}
			waiting, cancel = context.WithTimeout(ctx, due)
		}
		event, err = reader.Next(waiting)
		over := waiting.Err() != nil
		cancel()
		switch {
		case err == nil || !over || c.ctx.Err() != nil:
			return event, err
		case ctx.Err() != nil:
			return event, errRunning
		}
	}
}

// report returns the result of an execution.
func report(x runtime.Execution, output *outputParts) ran {
	out := ran{
		Execution: string(x.ID), Outcome: x.End.Outcome, Signal: x.End.Signal, Message: x.End.Message, Hint: x.Hint,
		Seconds: x.Usage.Wall.Seconds(), MemoryBytes: x.Usage.PeakMemory, LostBytes: output.lost, LostReason: output.reason,
	}
	if x.End.Outcome == runtime.OutcomeExited || x.End.ExitCode != 0 {
		out.ExitCode = &x.End.ExitCode
	}
	stdout, stderr := output.streams[runtime.Stdout], output.streams[runtime.Stderr]
	running := x.End.Outcome == ""
	out.Stdout, out.StdoutBase64 = stdout.text(output.cursor, running)
	out.Stderr, out.StderrBase64 = stderr.text(output.cursor, running)
	if out.OmittedBytes = stdout.omitted() + stderr.omitted(); out.OmittedBytes > 0 {
		out.Cursor = output.cursor
	}
	return out
}

// answer returns the result as text and images.
func (r ran) answer(images []*sdk.ImageContent) answer {
	return answer{text: r.String(), images: images, otherwise: fmt.Sprintf("the program has run; read_output has the output of execution %s", r.Execution)}
}

// String returns the result as text, for models and people.
func (r ran) String() string {
	var b strings.Builder
	what := "the program"
	if r.Phase == "build" {
		what = "the build, so nothing was run,"
	}
	switch {
	case r.Running:
		fmt.Fprintf(&b, "%s still runs after %.2f s: call read_output with cursor %q, which waits for more", strings.TrimSuffix(what, ", so nothing was run,"), r.Seconds, r.Cursor)
	case r.Outcome == runtime.OutcomeExited:
		fmt.Fprintf(&b, "%s exited with %d after %.2f s", what, *r.ExitCode, r.Seconds)
	default:
		fmt.Fprintf(&b, "%s ended with %s after %.2f s", what, strings.TrimSpace(string(r.Outcome)+" "+r.Signal), r.Seconds)
	}
	if r.Session != "" {
		fmt.Fprintf(&b, "; session %s keeps its files until close_session", r.Session)
	}
	message := r.Message
	if r.Outcome == runtime.OutcomeExited { // the rest says what else happened
		_, message, _ = strings.Cut(message, "; ")
	}
	if message != "" {
		fmt.Fprintf(&b, ": %s", message)
	}
	if r.Hint != "" {
		fmt.Fprintf(&b, "; %s", r.Hint)
	}
	fmt.Fprintf(&b, " (execution %s)\n", r.Execution)
	for _, s := range []struct{ name, text, encoded string }{{"stdout", r.Stdout, r.StdoutBase64}, {"stderr", r.Stderr, r.StderrBase64}} {
		if s.text == "" {
			continue
		}
		if s.encoded != "" {
			s.name += " (" + inBase64 + ")"
		}
		fmt.Fprintf(&b, "\n%s:\n%s", s.name, s.text)
		if !strings.HasSuffix(s.text, "\n") {
			b.WriteByte('\n')
		}
	}
	if r.LostBytes > 0 {
		fmt.Fprintf(&b, "\n%d bytes of output were not kept: %s\n", r.LostBytes, r.LostReason)
	}
	for _, f := range r.Files {
		fmt.Fprintf(&b, "\nfile %s, %d bytes%s\n", f.Path, f.Size, f.body())
	}
	if r.FilesNote != "" {
		fmt.Fprintf(&b, "\n%s\n", r.FilesNote)
	}
	return b.String()
}
