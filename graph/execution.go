package graph

import (
	"context"
	"encoding/base64"
	"time"

	"github.com/99designs/gqlgen/graphql"

	"github.com/rockpool/rockpool/graph/generated"
	"github.com/rockpool/rockpool/graph/model"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/executions"
	"github.com/rockpool/rockpool/runtime/request"
)

// The size of a page of output, in bytes.
const (
	defaultOutputBytes = 1 << 20
	maxOutputBytes     = 8 << 20
)

// The memory for each byte of a record, for example of an execution, and of its JSON in the answer.
const (
	recordMemory = 2 // it is read and decoded
	jsonMemory   = 3 // twice in a buffer that grows, and once in the answer
)

// chargeRecord takes the memory for a record of these bytes, and ahead of Command that for its JSON.
func chargeRecord(ctx context.Context, bytes int) error {
	return transport.ChargeAhead(ctx, recordMemory*int64(bytes), jsonMemory*int64(bytes))
}

// withinMemory takes the memory for the records of a page; size returns the bytes of one. It returns
// those that it got memory for, and whether others follow. It returns an error if there is none for the
// first.
func withinMemory[T any](ctx context.Context, page []T, size func(i int) int, more bool) ([]T, bool, error) {
	for i := range page {
		if err := chargeRecord(ctx, size(i)); err != nil {
			if i == 0 {
				return nil, false, err
			}
			clear(page[i:]) // otherwise they would stay in memory
			return page[:i], true, nil
		}
	}
	return page, more, nil
}

func (r query) Executions(ctx context.Context, runner, env *string, states []runtime.ExecutionState, outcomes []runtime.Outcome, failed *bool,
	labels []runtime.LabelFilter, command, text *string, from, to *time.Time, first *int, after *string, newestFirst *bool) (model.ExecutionConnection, error) {
	page, err := model.ParsePage(first, after)
	if err != nil {
		return model.ExecutionConnection{}, err
	}
	filter := request.Executions{RunnerID: runtime.RunnerID(orZero(runner)), EnvironmentID: runtime.EnvironmentID(orZero(env)), States: states, NewestFirst: orZero(newestFirst),
		Outcomes: outcomes, Failed: failed, Labels: labels, Command: orZero(command), Text: orZero(text), From: orZero(from), To: orZero(to)}
	found, err := r.engine.Executions.List(ctx, filter, page.First, runtime.ExecutionID(page.After))
	if err == nil {
		found.Executions, found.More, err = withinMemory(ctx, found.Executions, func(i int) int { return found.Sizes[i] }, found.More)
	}
	key := func(execution runtime.Execution) string { return string(execution.ID) }
	return model.PageOf(found.Executions, key, found.More, found.Total), err
}

func (r query) Execution(ctx context.Context, id string, waitFor *int) (*runtime.Execution, error) {
	seconds := orZero(waitFor)
	if err := runtime.Between("waitFor", int64(seconds), 0, int64(runtime.MaxTimeLimit/time.Second), "seconds"); err != nil {
		return nil, err
	}
	found, err := r.engine.Executions.Get(ctx, runtime.ExecutionID(id), time.Duration(seconds)*time.Second)
	return &found, err
}

func (r mutation) StartExecution(ctx context.Context, in generated.StartExecutionInput) (generated.StartExecutionPayload, error) {
	batch, err := batchInput(in.Cases, in.Build, in.StopOnFailure, nil)
	if err != nil {
		return generated.StartExecutionPayload{}, err
	}
	if batch != nil {
		made, first, err := r.engine.Batches.Start(ctx, startInput(in), *batch)
		return generated.StartExecutionPayload{Execution: first, Batch: &made}, err
	}
	started, err := r.engine.Executions.Start(ctx, startInput(in))
	return generated.StartExecutionPayload{Execution: started}, err
}

// startInput converts an input for the engine. Fields that aren't given are zero.
func startInput(in generated.StartExecutionInput) request.Start {
	return request.Start{
		RunnerID:         runtime.RunnerID(in.RunnerID),
		Command:          in.Command,
		Shell:            in.Shell,
		CommandLine:      orZero(in.CommandLine),
		Labels:           in.Labels,
		Variables:        in.Variables,
		WorkingDirectory: orZero(in.WorkingDirectory),
		TimeLimit:        in.TimeLimit,
		OutputLimit:      orZero(in.Limits).OutputBytes,
		CPUSeconds:       orZero(in.Limits).CPUSeconds,
		Processes:        orZero(in.Limits).Processes,
		OpenFiles:        orZero(in.Limits).OpenFiles,
		FileSize:         orZero(in.Limits).FileSize,
		Stdin:            orZero(in.Stdin),
		Terminal:         in.Terminal,
		Lease:            in.Lease,
		Privileged:       orZero(in.Privileged),
		Key:              orZero(in.IdempotencyKey),
	}
}

func (r mutation) ResizeTerminal(ctx context.Context, in generated.ResizeTerminalInput) (generated.ResizeTerminalPayload, error) {
	resized, err := r.engine.Executions.Resize(ctx, runtime.ExecutionID(in.ExecutionID), runtime.TerminalSize{Columns: in.Columns, Rows: in.Rows})
	return generated.ResizeTerminalPayload{Execution: resized}, err
}

func (r mutation) SignalExecution(ctx context.Context, in generated.SignalExecutionInput) (generated.SignalExecutionPayload, error) {
	signalled, err := r.engine.Executions.Signal(ctx, runtime.ExecutionID(in.ExecutionID), in.Signal)
	return generated.SignalExecutionPayload{Execution: signalled}, err
}

func (r mutation) WriteStdin(ctx context.Context, in generated.WriteStdinInput) (generated.WriteStdinPayload, error) {
	data, err := stdinData(in)
	if err != nil {
		return generated.WriteStdinPayload{}, err
	}
	offset, err := r.engine.Executions.WriteStdin(ctx, request.Stdin{
		ExecutionID: runtime.ExecutionID(in.ExecutionID), Data: data, Offset: in.Offset, Close: orZero(in.Close),
	})
	return generated.WriteStdinPayload{Offset: offset}, err
}

func (r mutation) CancelExecution(ctx context.Context, id string) (generated.CancelExecutionPayload, error) {
	cancelled, err := r.engine.Executions.Cancel(ctx, runtime.ExecutionID(id))
	return generated.CancelExecutionPayload{Execution: cancelled}, err
}

func (r mutation) RenewLease(ctx context.Context, id string) (generated.RenewLeasePayload, error) {
	renewed, err := r.engine.Executions.RenewLease(ctx, id)
	return generated.RenewLeasePayload{Renewed: renewed}, err
}

func (r mutation) Run(ctx context.Context, in generated.RunInput) (generated.RunPayload, error) {
	files, err := fileWrites("files", in.Files)
	if err != nil {
		return generated.RunPayload{}, err
	}
	batch, err := batchInput(in.Cases, in.Build, in.StopOnFailure, in.FreshRunners)
	if err != nil {
		return generated.RunPayload{}, err
	}
	run := request.Run{
		EnvironmentID: runtime.EnvironmentID(in.EnvironmentID), Files: files, Protected: orZero(in.Protected), Command: in.Command, Shell: in.Shell, CommandLine: orZero(in.CommandLine), Labels: in.Labels, Variables: in.Variables,
		Stdin: in.Stdin, TimeLimit: in.TimeLimit, Lease: in.Lease, WaitFor: in.WaitFor, Key: orZero(in.IdempotencyKey),
		Caller: callerOf(ctx),
	}
	if batch != nil {
		made, first, err := r.engine.Batches.Run(ctx, run, *batch)
		return generated.RunPayload{Execution: first, Batch: &made}, err
	}
	started, err := r.engine.Executions.Run(ctx, run)
	return generated.RunPayload{Execution: started}, err
}

// stdinData returns the bytes for standard input. It returns INVALID_INPUT if there is nothing to
// do.
func stdinData(in generated.WriteStdinInput) ([]byte, error) {
	switch {
	case in.Text != nil && in.Base64 != nil:
		return nil, runtime.Invalid("text", "text and base64 can't both be given")
	case in.Text != nil:
		return []byte(*in.Text), nil
	case in.Base64 == nil && !orZero(in.Close):
		return nil, runtime.Invalid("text", "text, base64 or close must be given")
	default:
		return in.Base64, nil
	}
}

// lineMemory is the memory for each byte of a command line: the byte, and its JSON in a buffer that
// grows.
const lineMemory = 7

// argMemory is the memory for each argument of a command, without its text: an element of the answer.
const argMemory = 48

func (r execution) Command(ctx context.Context, of *runtime.Execution) ([]string, error) {
	var bytes int64
	for _, arg := range of.Command {
		bytes += argMemory + jsonMemory*transport.StringBytes([]byte(arg))
	}
	return of.Command, transport.Charge(ctx, bytes)
}

func (r execution) CommandLine(ctx context.Context, of *runtime.Execution) (string, error) {
	line := of.CommandLine()
	return line, transport.Charge(ctx, lineMemory*int64(len(line)))
}

func (r execution) Labels(ctx context.Context, of *runtime.Execution) ([]runtime.Label, error) {
	return visibleLabels(ctx, of.Labels), nil
}

func (r execution) OutputURL(ctx context.Context, of *runtime.Execution) (string, error) {
	p, err := r.engine.Callers.Allowed(ctx, "output")
	return r.links.Output(p, of.ID), err
}

// The memory of a page of output, in bytes. It is measured: with six pages in each of four
// concurrent operations, 98,304 chunks without text took 1365 each.
const (
	chunkMemory = 1400 // for a chunk or a line
	fieldMemory = 128  // for each of its fields, without its name and text
)

// A pageCost counts the fields that are selected of each chunk or line, including aliases.
type pageCost struct{ names, fields, texts, base64s int64 }

// costOfPage returns the cost of the page that ctx's field selects.
func costOfPage(ctx context.Context) (c pageCost) {
	op := graphql.GetOperationContext(ctx)
	for _, field := range graphql.CollectFieldsCtx(ctx, nil) {
		if field.Name != "chunks" && field.Name != "lines" {
			continue
		}
		for _, of := range graphql.CollectFields(op, field.Selections, nil) {
			c.fields++
			c.names += int64(len(of.Alias))
			switch of.Name {
			case "text":
				c.texts++
			case "base64":
				c.base64s++
			}
		}
	}
	return c
}

// of returns the memory of a chunk or line in bytes: its data, and for each text or base64 the
// string and three times its JSON. Two of these three are the buffer, which grows, and one is the
// answer.
func (c pageCost) of(data []byte) int64 {
	bytes := int64(len(data)) + chunkMemory + c.fields*fieldMemory + 3*c.names
	if c.texts > 0 {
		bytes += c.texts * (int64(len(data)) + 3*transport.StringBytes(data))
	}
	return bytes + c.base64s*4*int64(base64.StdEncoding.EncodedLen(len(data)))
}

// Output returns a page of output. The operation takes the memory of each event when it is read. If
// there is no memory for more, the page ends.
func (r execution) Output(ctx context.Context, of *runtime.Execution, after *string, maxBytes *int) (model.OutputPage, error) {
	if maxBytes != nil {
		if err := runtime.Between("maxBytes", int64(*maxBytes), 1, maxOutputBytes, "bytes"); err != nil {
			return model.OutputPage{}, err
		}
	}
	cost := costOfPage(ctx)
	page, err := r.engine.Executions.Output(ctx, of.ID, orZero(after), outputBytes(maxBytes))
	if err != nil {
		return model.OutputPage{}, err
	}
	defer page.Close()
	chunks, next, end, err := page.Rest(func(output events.Event) error { return transport.Charge(ctx, cost.of(output.Data)) })
	return model.NewOutputPage(chunks, next, end), err
}

// defaultLines is the default number of lines in a page.
const defaultLines = 100

// Lines returns a page of lines. If there is no memory for all of them, the rest is on the next page.
func (r execution) Lines(ctx context.Context, of *runtime.Execution, from, skip *int64, last *bool, maxLines *int, stream *runtime.Stream, containing *string, matchCase *bool) (model.OutputLinePage, error) {
	query := executions.LineQuery{
		From: from, Skip: skip, MaxLines: defaultLines, Last: orZero(last), Stream: orZero(stream), Containing: containing, MatchCase: orZero(matchCase),
	}
	if maxLines != nil {
		query.MaxLines = *maxLines
	}
	cost := costOfPage(ctx)
	page, err := r.engine.Executions.Lines(ctx, of.ID, query)
	for i, line := range page.Lines {
		if err := transport.Charge(ctx, cost.of(line.Data)); err != nil {
			if i == 0 {
				return model.OutputLinePage{}, err
			}
			clear(page.Lines[i:])
			page.Lines, page.Next, page.More = page.Lines[:i], line.Number, true
			break
		}
	}
	return model.OutputLinePage{LinePage: page}, err
}

func (r execution) Runner(ctx context.Context, of *runtime.Execution) (*runtime.Runner, error) {
	return r.existingRunner(ctx, of.RunnerID)
}

func (r execution) BatchID(_ context.Context, of *runtime.Execution) (*string, error) {
	if of.Batch == nil {
		return nil, nil
	}
	return orNull(string(of.Batch.ID)), nil
}

func (r execution) CaseIndex(_ context.Context, of *runtime.Execution) (*int, error) {
	if of.Batch == nil {
		return nil, nil
	}
	return model.CaseIndex(of.Batch.Case), nil
}

// ExitCode is null without a code, since 0 would look like a success.
func (r execution) ExitCode(_ context.Context, of *runtime.Execution) (*int, error) {
	if of.End.Outcome != runtime.OutcomeExited {
		return orNull(of.End.ExitCode), nil
	}
	return &of.End.ExitCode, nil
}

// Usage returns null until the execution has ended.
func (r execution) Usage(_ context.Context, of *runtime.Execution) (*runtime.Usage, error) {
	if of.State != runtime.ExecutionFinished {
		return nil, nil
	}
	return &of.Usage, nil
}

func (r execution) UsageNow(ctx context.Context, of *runtime.Execution) (*runtime.UsageNow, error) {
	return r.engine.Executions.Usage(ctx, *of), nil
}

func (r runner) Usage(ctx context.Context, of *runtime.Runner) (*runtime.RunnerUsage, error) {
	return r.engine.Runners.Usage(ctx, *of), nil
}
