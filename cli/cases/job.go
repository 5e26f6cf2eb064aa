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

// How long commands wait, and for what.
const (
	runnerPatience = 30 * time.Second // for a runner
	cancelPatience = 3 * time.Second  // for the end of what was cancelled
	goodbye        = 5 * time.Second  // for the last calls
)

// A Job runs a program once for each case. Every call has a key or a cursor, so that it is
// safe to repeat where the connection broke before the answer came.
type Job struct {
	Client        *client.Client
	Out, Err      io.Writer
	Input         client.RunInput // but for what follows
	Cases         []Case
	StopOnFailure bool // also where the output isn't the wanted one
	Quiet         bool // no line for each case, and no output of the build: the Report is all

	batch   string
	after   *string
	stopped bool // because of a wrong output
	current Result
	report  Report
	lost    bool // the connection is broken
}

// A Report is what came of a job.
type Report struct {
	Batch client.Batch `json:"batch"`
	Build *Result      `json:"build"` // nil: there was none
	Cases []Result     `json:"cases"`
}

// A Result is what came of the build or of a case.
type Result struct {
	Name       string            `json:"name,omitempty"`
	State      runtime.CaseState `json:"state"` // FAILED also where the output isn't the wanted one
	Outcome    runtime.Outcome   `json:"outcome,omitempty"`
	ExitCode   *int              `json:"exitCode"`
	Signal     string            `json:"signal,omitempty"`
	Message    string            `json:"message,omitempty"`
	Difference string            `json:"difference,omitempty"` // between the wanted output and the program's
	WallMs     int64             `json:"wallMs"`
	Stdout     string            `json:"stdout"`
	Stderr     string            `json:"stderr"`
	LostBytes  int64             `json:"lostBytes"`

	stdout, stderr []byte
}

// Passed is how many cases passed.
func (r Report) Passed() int { return r.count(runtime.CasePassed) }

// Failed is how many cases failed.
func (r Report) Failed() int { return r.count(runtime.CaseFailed) }

func (r Report) count(state runtime.CaseState) (n int) {
	for _, c := range r.Cases {
		if c.State == state {
			n++
		}
	}
	return n
}

// Run does it all. Cancelling ctx cancels the batch: Run then returns context.Canceled if
// that doesn't end soon.
func (j *Job) Run(ctx context.Context) (Report, error) {
	j.Input.WaitFor, j.Input.IdempotencyKey = new(int(runnerPatience/time.Second)), new(uuid.NewString())
	j.Input.StopOnFailure = &j.StopOnFailure
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
	defer context.AfterFunc(ctx, func() {
		j.cancel()
		time.AfterFunc(cancelPatience, end)
	})()
	if err := j.follow(following); err != nil {
		return j.report, orCancelled(ctx, err)
	}
	return j.report, nil
}

func orCancelled(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Canceled // what a cancelled call says is no news
	}
	return err
}

func (j *Job) cancel() {
	ctx, end := context.WithTimeout(context.Background(), goodbye)
	defer end()
	_, _ = client.CancelBatch(ctx, connection.Patient(j.Client, goodbye), j.batch) // its end, or none, is seen by follow
}

// follow reads the batch's events to the end. A broken connection is taken up again after
// the last event that arrived whole.
func (j *Job) follow(ctx context.Context) error {
	finished := false
	var local error // what happened here, which no other connection mends
	handle := func(event client.BatchEvent) error {
		j.lost = false
		j.after = &event.Cursor
		if finished = event.Type == "BatchFinished"; finished {
			j.report.Batch = j.judged(event.Batch)
			return nil
		}
		local = j.take(event)
		return local
	}
	for !finished {
		before := j.after
		err := client.Persist(ctx, connection.Patience, client.Passing, func() error {
			err := j.Client.FollowBatch(ctx, j.batch, j.after, handle)
			switch {
			case local != nil || finished || j.after != before:
				return nil // how the connection ended doesn't matter any more, or patience begins anew
			case err == nil:
				return errors.New("the server ended the stream early")
			case client.Passing(err) && ctx.Err() == nil && !j.lost:
				j.lost = true
				j.say("the connection broke; trying to take it up again for %v, or until Ctrl-C", connection.Patience)
			}
			return err
		})
		switch {
		case local != nil:
			return local
		case err != nil && client.Passing(err):
			return fmt.Errorf("%w; nobody knows how the batch ended", connection.Lost(j.Client, err))
		case err != nil:
			return err
		}
	}
	return nil
}

func (j *Job) say(format string, args ...any) {
	_, _ = fmt.Fprintf(j.Err, "rockpool: %s\n", output.Lines(fmt.Sprintf(format, args...)))
}

// take takes in an event of the build or of a case.
func (j *Job) take(event client.BatchEvent) error {
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

func (j *Job) printed(event client.BatchEvent) (err error) {
	data := event.Event.Base64
	if event.CaseIndex == nil && !j.Quiet { // what a compiler says, as it comes
		_, err = j.Err.Write(data)
	}
	if event.Event.Stream == client.OutputStreamStderr {
		j.current.stderr = append(j.current.stderr, data...)
	} else {
		j.current.stdout = append(j.current.stdout, data...)
	}
	return err
}

// ended judges the build or a case.
func (j *Job) ended(event client.BatchEvent) error {
	r, x := j.current, event.Event.Execution
	j.current = Result{}
	r.Outcome, r.ExitCode, r.Signal, r.Message, r.WallMs = x.Outcome, x.ExitCode, x.Signal, x.Message, x.Usage.WallMs
	r.State = runtime.CaseFailed
	if x.Outcome == runtime.OutcomeExited && x.ExitCode != nil && *x.ExitCode == 0 {
		r.State = runtime.CasePassed
	}
	if j.stopped && x.Outcome == runtime.OutcomeCancelled {
		return nil // it is skipped, as those after it
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
			r.Difference = fmt.Sprintf("%d bytes of output are lost", r.LostBytes)
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

// judged returns a batch as this side judges it, which alone knows the wanted outputs.
func (j *Job) judged(b client.Batch) client.Batch {
	b.FailedCount = j.report.Failed()
	if j.stopped {
		b.SkippedCount = j.report.count(runtime.CaseSkipped)
		b.EndedCount = len(j.report.Cases) - b.SkippedCount
	}
	if j.stopped && b.Outcome == runtime.BatchCancelled {
		b.Outcome, b.Message = runtime.BatchStopped, "a case failed, and the later ones were skipped"
	}
	return b
}

// stopAfter ends the batch because of an output that only this side knows to be wrong.
func (j *Job) stopAfter() {
	if j.StopOnFailure && !j.stopped {
		j.stopped = true
		j.cancel()
	}
}
