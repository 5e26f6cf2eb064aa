package graph

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/99designs/gqlgen/graphql"

	"github.com/rockpool/rockpool/graph/generated"
	"github.com/rockpool/rockpool/graph/model"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/batch"
	"github.com/rockpool/rockpool/runtime/request"
)

// batchInput returns the part of an input that makes it a batch; nil if it starts no batch.
func batchInput(cases []generated.CaseInput, build *generated.BuildInput, stopOnFailure, freshRunners *bool) (*request.Batch, error) {
	if cases == nil {
		return nil, withoutCases(map[string]bool{"build": build != nil, "stopOnFailure": orZero(stopOnFailure), "freshRunners": orZero(freshRunners)})
	}
	in := request.Batch{Cases: make([]request.Case, len(cases)), StopOnFailure: orZero(stopOnFailure), FreshRunners: orZero(freshRunners)}
	if build != nil {
		in.Build = &request.Build{Command: build.Command, Shell: build.Shell, Bounds: bounds(build.TimeLimit, build.Limits)}
	}
	for i, c := range cases {
		if c.Stdin != nil && c.StdinBase64 != nil {
			return nil, runtime.Invalid(fmt.Sprintf("cases.%d.stdin", i), "stdin and stdinBase64 can't both be given")
		}
		if c.ExpectedOutput != nil && c.ExpectedOutputBase64 != nil {
			return nil, runtime.Invalid(fmt.Sprintf("cases.%d.expectedOutput", i), "expectedOutput and expectedOutputBase64 can't both be given")
		}
		// At most one of Stdin and StdinBase64 is given.
		in.Cases[i] = request.Case{Args: c.Args, Stdin: append(c.StdinBase64, orZero(c.Stdin)...), Expected: c.ExpectedOutputBase64, Compare: orZero(c.Compare), Tolerance: c.Tolerance, Bounds: bounds(c.TimeLimit, c.Limits)}
		if c.ExpectedOutput != nil {
			in.Cases[i].Expected = append([]byte{}, *c.ExpectedOutput...)
		}
	}
	return &in, nil
}

// withoutCases returns INVALID_INPUT for a given field that needs cases.
func withoutCases(given map[string]bool) error {
	for _, field := range []string{"build", "stopOnFailure", "freshRunners"} {
		if given[field] {
			return runtime.Invalid(field, "only a batch has it: set cases too")
		}
	}
	return nil
}

// bounds returns the limits of a build or a case. Limits that are nil aren't given.
func bounds(timeLimit *int, limits *generated.LimitsInput) batch.Bounds {
	l := orZero(limits)
	return batch.Bounds{
		TimeLimit: timeLimit, OutputLimit: l.OutputBytes, CPUSeconds: l.CPUSeconds,
		Processes: l.Processes, OpenFiles: l.OpenFiles, FileSize: l.FileSize,
	}
}

func (r query) Batches(ctx context.Context, runner, env *string, first *int, after *string, newestFirst *bool) (model.BatchConnection, error) {
	page, err := model.ParsePage(first, after)
	if err != nil {
		return model.BatchConnection{}, err
	}
	filter := request.Batches{RunnerID: runtime.RunnerID(orZero(runner)), EnvironmentID: runtime.EnvironmentID(orZero(env)), NewestFirst: orZero(newestFirst)}
	found, total, err := r.engine.Batches.List(ctx, filter, page.First, runtime.BatchID(page.After))
	return model.LoadedPage(found, func(b runtime.Batch) string { return string(b.ID) }, page, total), err
}

func (r query) Batch(ctx context.Context, id string) (*runtime.Batch, error) {
	found, err := r.engine.Batches.Get(ctx, runtime.BatchID(id))
	return &found, err
}

func (r mutation) CancelBatch(ctx context.Context, id string) (generated.CancelBatchPayload, error) {
	cancelled, err := r.engine.Batches.Cancel(ctx, runtime.BatchID(id))
	return generated.CancelBatchPayload{Batch: cancelled}, err
}

func (r batchFields) EndedCount(_ context.Context, of *runtime.Batch) (int, error) {
	return of.Progress.Ended, nil
}

func (r batchFields) FailedCount(_ context.Context, of *runtime.Batch) (int, error) {
	return of.Progress.Failed, nil
}

func (r batchFields) Build(ctx context.Context, of *runtime.Batch) (*runtime.Execution, error) {
	build, err := r.engine.Batches.Build(ctx, *of)
	if err != nil || build == nil {
		return nil, err
	}
	return &build.Execution, chargeRecord(ctx, build.Bytes)
}

// Cases returns a page of the cases. The cursor of a case is its index.
func (r batchFields) Cases(ctx context.Context, of *runtime.Batch, first *int, after *string) (model.BatchCaseConnection, error) {
	page, err := model.ParsePage(first, after)
	if err != nil {
		return model.BatchCaseConnection{}, err
	}
	from := 0
	if page.After != "" {
		at, err := strconv.Atoi(page.After)
		if err != nil || at < 0 || at >= of.CaseCount {
			return model.BatchCaseConnection{}, runtime.Invalid("after", "must be a cursor of an earlier page")
		}
		from = at + 1
	}
	end := min(from+page.First, of.CaseCount)
	found, err := r.engine.Batches.Cases(ctx, *of, from, end)
	more := from+len(found) < of.CaseCount
	if err == nil {
		found, more, err = withinMemory(ctx, found, func(i int) int { return found[i].RecordBytes }, more)
	}
	return model.PageOf(found, func(c runtime.Case) string { return strconv.Itoa(c.Index) }, more, of.CaseCount), err
}

// BatchEvents sends a batch's events. BatchFinished is missing if reading fails before the end.
func (r subscription) BatchEvents(ctx context.Context, id string, after *string) (<-chan model.BatchEvent, error) {
	if name := twice(graphql.GetOperationContext(ctx), graphql.CollectFieldsCtx(ctx, []string{"BatchExecutionEvent", "BatchEvent"})); name != "" {
		return nil, runtime.Errorf(runtime.CodeLimitExceeded, "select an event's %s only once: a slow reader keeps each copy in memory", name)
	}
	events, err := r.engine.Batches.Events(ctx, runtime.BatchID(id), orZero(after))
	if err != nil {
		return nil, err
	}
	out := make(chan model.BatchEvent)
	err = r.engine.Go(ctx, func(ctx context.Context) {
		defer close(out)
		defer r.engine.CountSubscription(activity.WatchExecution)()
		sendBatchEvents(ctx, events, out)
		_ = events.Close() // it was only read
	})
	if err != nil {
		return nil, errors.Join(err, events.Close())
	}
	return out, nil
}

// sendBatchEvents sends events until they end, can't be read, or ctx ends.
func sendBatchEvents(ctx context.Context, events *batch.Reader, out chan<- model.BatchEvent) {
	for {
		event, err := events.Next(ctx)
		if err != nil {
			return
		}
		select {
		case out <- model.NewBatchEvent(event):
		case <-ctx.Done():
			return
		}
	}
}

// twice returns the name of a large part of a batch's events that is selected more than once, or "" if
// there is none.
func twice(op *graphql.OperationContext, selected []graphql.CollectedField) string {
	selected = slices.DeleteFunc(slices.Clone(selected), func(f graphql.CollectedField) bool { return f.Name != "event" })
	switch len(selected) {
	case 0:
		return ""
	case 1:
		return newOutputEncoder(op, selected[0]).twice()
	}
	return "event"
}
