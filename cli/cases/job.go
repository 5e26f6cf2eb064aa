package cases

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/rockpool/rockpool/cli/advice"
	"github.com/rockpool/rockpool/cli/connection"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

// Timeouts.
const (
	runnerPatience = 30 * time.Second // of the wait for a runner
	cancelPatience = 3 * time.Second  // of the wait for a cancelled batch to end
	cleanupTimeout = 5 * time.Second  // of the last calls
)

// A Job runs a program once for each case. Every call has an idempotency key or a cursor, so it can
// be repeated safely if the connection breaks before the response. Use a Job once.
type Job struct {
	Client        *client.Client
	Out, Err      io.Writer
	Input         client.RunInput // except cases and keys, which Run adds
	Cases         []Case
	StopOnFailure bool // also after an unexpected output
	Quiet         bool // print nothing: neither lines for cases nor the output of the build

	batch   string
	after   *string
	stopped bool // because of an unexpected output
	current Result
	report  Report
	lost    bool // the connection is broken
}

// A Report is the result of a job.
type Report struct {
	Batch client.Batch `json:"batch"`
	Build *Result      `json:"build"` // nil: no build
	Cases []Result     `json:"cases"`
}

// A Result is the result of the build or of a case.
type Result struct {
	Name       string            `json:"name,omitempty"`
	State      runtime.CaseState `json:"state"` // FAILED also after an unexpected output
	Outcome    runtime.Outcome   `json:"outcome,omitempty"`
	ExitCode   *int              `json:"exitCode"`
	Signal     string            `json:"signal,omitempty"`
	Message    string            `json:"message,omitempty"`
	Difference string            `json:"difference,omitempty"` // between the expected output and the program's
	WallMs     int64             `json:"wallMs"`
	Stdout     string            `json:"stdout"`
	Stderr     string            `json:"stderr"`
	LostBytes  int64             `json:"lostBytes"`

	stdout, stderr []byte
}

// Passed returns the number of cases that passed.
func (r Report) Passed() int { return r.count(runtime.CasePassed) }

// Failed returns the number of cases that failed.
func (r Report) Failed() int { return r.count(runtime.CaseFailed) }

// count returns the number of cases in a state.
func (r Report) count(state runtime.CaseState) (n int) {
	for _, c := range r.Cases {
		if c.State == state {
			n++
		}
	}
	return n
}

// Run runs the batch and returns the report. Cancelling ctx cancels the batch. If the batch doesn't
// end within cancelPatience after that, Run returns context.Canceled.
func (j *Job) Run(ctx context.Context) (Report, error) {
	j.Input.WaitFor, j.Input.IdempotencyKey = new(int(runnerPatience/time.Second)), new(uuid.NewString())
	j.Input.StopOnFailure, j.Input.Lease = &j.StopOnFailure, new(connection.Lease)
	for _, c := range j.Cases {
		j.Input.Cases = append(j.Input.Cases, c.Input)
		j.report.Cases = append(j.report.Cases, Result{Name: c.Name, State: runtime.CaseSkipped})
	}
	started, err := client.RunBatch(ctx, connection.Patient(j.Client, runnerPatience+connection.Patience), j.Input)
	if err != nil {
		return j.report, orCancelled(ctx, advice.Unknown(ctx, j.Client, j.Input.EnvironmentId, err))
	}
	j.batch = started.Run.Batch.Id
	following, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	go connection.KeepLease(following, j.Client, j.batch)
	defer context.AfterFunc(ctx, func() {
		j.cancel()
		time.AfterFunc(cancelPatience, end)
	})()
	if err := j.follow(following); err != nil {
		j.cancel()
		return j.report, orCancelled(ctx, err)
	}
	return j.report, nil
}

// orCancelled returns err, or context.Canceled if ctx has ended.
func orCancelled(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Canceled // the error of a cancelled call says nothing new
	}
	return err
}

// cancel cancels the batch, even if the job's own context has ended. It waits at most
// cleanupTimeout.
func (j *Job) cancel() {
	ctx, end := context.WithTimeout(context.Background(), cleanupTimeout)
	defer end()
	_, _ = client.CancelBatch(ctx, connection.Patient(j.Client, cleanupTimeout), j.batch) // follow sees the result
}

// follow reads the batch's events to the end. If the connection breaks, it reconnects and continues
// after the last complete event.
func (j *Job) follow(ctx context.Context) error {
	finished := false
	var local error // an error on this side: reconnecting doesn't help
	handle := func(event client.BatchEvent) error {
		j.lost = false
		j.after = &event.Cursor
		if finished = event.Type == "BatchFinished"; finished {
			j.report.Batch = j.judged(event.Batch)
			return nil
		}
		if err := j.handle(event); err != nil {
			local = &output.WriteError{Err: err}
		}
		return local
	}
	for !finished {
		before := j.after
		err := client.Persist(ctx, connection.Patience, client.Passing, func() error {
			err := j.Client.FollowBatch(ctx, j.batch, j.after, handle)
			switch {
			case local != nil || finished || j.after != before:
				return nil // either the connection no longer matters, or there was progress and patience restarts
			case err == nil:
				return errors.New("the server ended the stream early")
			case client.Passing(err) && ctx.Err() == nil && !j.lost:
				j.lost = true
				j.notify("the connection broke; trying to reconnect for %v (Ctrl-C stops)", connection.Patience)
			}
			return err
		})
		switch {
		case local != nil:
			return local
		case err != nil && client.Passing(err):
			return fmt.Errorf("%w; it is unknown how the batch ended", connection.Lost(j.Client, err))
		case err != nil:
			return err
		}
	}
	return nil
}

// notify prints a message of this command, as opposed to the program's output.
func (j *Job) notify(format string, args ...any) {
	_, _ = fmt.Fprintf(j.Err, "rockpool: %s\n", output.Lines(fmt.Sprintf(format, args...)))
}

// handle processes an event of the build or of a case.
func (j *Job) handle(event client.BatchEvent) error {
	switch e := event.Event; e.Type {
	case "ExecutionStarted":
		j.current = Result{}
	case "ExecutionOutput":
		return j.printed(event)
	case "ExecutionOutputLost":
		j.current.LostBytes += e.Bytes
	case "ExecutionFinished":
		return j.ended(event)
	}
	return nil
}

// printed collects a piece of output of the current execution. The build's output is also shown,
// unless the job is quiet.
func (j *Job) printed(event client.BatchEvent) (err error) {
	data := event.Event.Base64
	if event.CaseIndex == nil && !j.Quiet { // the build's output, as it arrives
		_, err = j.Err.Write(data)
	}
	if event.Event.Stream == client.OutputStreamStderr {
		j.current.stderr = append(j.current.stderr, data...)
	} else {
		j.current.stdout = append(j.current.stdout, data...)
	}
	return err
}

// ended records the result of the build or of a case.
func (j *Job) ended(event client.BatchEvent) error {
	r, x := j.current, event.Event.Execution
	j.current = Result{}
	r.Outcome, r.ExitCode, r.Signal, r.Message, r.WallMs = x.Outcome, x.ExitCode, x.Signal, x.Message, x.Usage.WallMs
	r.State = runtime.CaseFailed
	if x.Outcome == runtime.OutcomeExited && x.ExitCode != nil && *x.ExitCode == 0 {
		r.State = runtime.CasePassed
	}
	if j.stopped && x.Outcome == runtime.OutcomeCancelled {
		return nil // it counts as skipped, like the later cases
	}
	if j.Quiet {
		r.Stdout, r.Stderr = string(r.stdout), string(r.stderr)
	}
	if event.CaseIndex == nil {
		j.report.Build = &r
		return nil
	}
	c := j.Cases[*event.CaseIndex]
	r.Name = c.Name
	if c.Wanted != nil && r.State == runtime.CasePassed {
		r.Difference = difference(c.Wanted, r.stdout)
		if r.LostBytes > 0 {
			r.Difference = fmt.Sprintf("%d bytes of output were lost", r.LostBytes)
		}
		if r.Difference != "" {
			r.State = runtime.CaseFailed
			j.stopAfter()
		}
	}
	err := j.print(r)
	r.stdout, r.stderr = nil, nil
	j.report.Cases[*event.CaseIndex] = r
	return err
}

// judged corrects a batch's counts and outcome: only this side knows the expected outputs.
func (j *Job) judged(b client.Batch) client.Batch {
	b.FailedCount = j.report.Failed()
	if j.stopped {
		b.SkippedCount = j.report.count(runtime.CaseSkipped)
		b.EndedCount = len(j.report.Cases) - b.SkippedCount
	}
	if j.stopped && b.Outcome == runtime.BatchCancelled {
		b.Outcome, b.Message = runtime.BatchStopped, "a case failed; the later ones were skipped"
	}
	return b
}

// stopAfter cancels the batch after an unexpected output, which the server doesn't know about.
func (j *Job) stopAfter() {
	if j.StopOnFailure && !j.stopped {
		j.stopped = true
		j.cancel()
	}
}
