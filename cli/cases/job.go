package cases

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/rockpool/rockpool/cli/command"
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

// Bounds of the output that a job holds.
const (
	keptBytes = 2 << 20  // of all cases together, for a report
	tailBytes = 16 << 10 // at the end of stderr, for a line on a failed case
)

// A Job runs a program once for each case. Every call has an idempotency key or a cursor, so it can
// be repeated safely if the connection breaks before the response. Use a Job once.
type Job struct {
	Client        *client.Client
	Out, Err      io.Writer
	Input         client.RunInput // except cases and keys, which Run adds
	Cases         []Case
	Compare       runtime.CompareMode // of all cases with an expected output
	Tolerance     *float64            // with NUMBERS; nil for the server's default
	StopOnFailure bool
	Quiet         bool // print nothing: neither lines for cases nor the output of the build

	batch   string
	after   *string
	current Result
	kept    int // bytes of output in the report
	report  Report
	lost    bool // the connection is broken
}

// A Report is the result of a job.
type Report struct {
	Batch client.Batch `json:"batch"`
	Build *Result      `json:"build"` // nil without a build
	Cases []Result     `json:"cases"`
}

// A Result is the result of the build or of a case.
type Result struct {
	Name        string            `json:"name,omitempty"`
	ExecutionID string            `json:"executionId,omitempty"`
	State       runtime.CaseState `json:"state"`
	Outcome     runtime.Outcome   `json:"outcome,omitempty"`
	ExitCode    *int              `json:"exitCode"`
	Signal      string            `json:"signal,omitempty"`
	Message     string            `json:"message,omitempty"`
	Difference  string            `json:"difference,omitempty"` // between the expected output and the program's
	WallMs      int64             `json:"wallMs"`
	Stdout      string            `json:"stdout"`
	Stderr      string            `json:"stderr"`
	Truncated   bool              `json:"truncated,omitempty"` // Stdout or Stderr lacks output that the server has
	LostBytes   int64             `json:"lostBytes"`

	stdout, stderr []byte // as far as they are kept
}

// Passed returns the number of cases that passed.
func (r Report) Passed() int { return r.count(runtime.CasePassed) }

// Failed returns the number of cases that failed.
func (r Report) Failed() int { return r.count(runtime.CaseFailed) }

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
	j.Input.StopOnFailure, j.Input.Lease = &j.StopOnFailure, new(command.Lease)
	for _, c := range j.Cases {
		if c.Input.ExpectedOutputBase64 != nil {
			c.Input.Compare, c.Input.Tolerance = &j.Compare, j.Tolerance
		}
		j.Input.Cases = append(j.Input.Cases, c.Input)
		j.report.Cases = append(j.report.Cases, Result{Name: c.Name, State: runtime.CaseSkipped})
	}
	started, err := client.RunBatch(ctx, command.Patient(j.Client, runnerPatience+command.Patience), j.Input)
	if err != nil {
		return j.report, orCancelled(ctx, command.UnknownEnvironment(ctx, j.Client, j.Input.EnvironmentId, err))
	}
	j.batch = started.Run.Batch.Id
	following, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	go command.KeepLease(following, j.Client, j.batch)
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
	_, _ = client.CancelBatch(ctx, command.Patient(j.Client, cleanupTimeout), j.batch) // follow sees the result
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
			j.report.Batch = event.Batch
			return nil
		}
		if err := j.handle(event); err != nil {
			local = &output.WriteError{Err: err}
		}
		return local
	}
	for !finished {
		before := j.after
		err := client.Persist(ctx, command.Patience, client.Passing, func() error {
			err := j.Client.FollowBatch(ctx, j.batch, j.after, handle)
			switch {
			case local != nil || finished || j.after != before:
				return nil // either the connection no longer matters, or there was progress and patience restarts
			case err == nil:
				return errors.New("the server ended the stream early")
			case client.Passing(err) && ctx.Err() == nil && !j.lost:
				j.lost = true
				j.notify("the connection broke; trying to reconnect for %v (Ctrl-C stops)", command.Patience)
			}
			return err
		})
		switch {
		case local != nil:
			return local
		case err != nil && client.Passing(err):
			return fmt.Errorf("%w; it is unknown how the batch ended", command.Lost(j.Client, err))
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

// printed handles a piece of output of the current execution. The build's output is also shown, unless
// the job is quiet. A report keeps output up to keptBytes, a printed line only the end of stderr.
func (j *Job) printed(event client.BatchEvent) (err error) {
	data, r := event.Event.Base64, &j.current
	if event.CaseIndex == nil && !j.Quiet { // the build's output, as it arrives
		_, err = j.Err.Write(data)
	}
	isStderr := event.Event.Stream == client.OutputStreamStderr
	switch {
	case j.Quiet:
		if room := keptBytes - j.kept; len(data) > room {
			data, r.Truncated = data[:room], true
		}
		j.kept += len(data)
		if isStderr {
			r.stderr = append(r.stderr, data...)
		} else {
			r.stdout = append(r.stdout, data...)
		}
	case isStderr:
		r.stderr = append(r.stderr, data...)
		r.stderr = r.stderr[max(0, len(r.stderr)-tailBytes):]
	}
	return err
}

// ended records the result of the build or of a case.
func (j *Job) ended(event client.BatchEvent) error {
	r, x := j.current, event.Event.Execution
	j.current = Result{}
	r.ExecutionID, r.Outcome, r.ExitCode, r.Signal, r.Message, r.WallMs = x.Id, x.Outcome, x.ExitCode, x.Signal, x.Message, x.Usage.WallMs
	r.State = runtime.CaseFailed
	if x.Outcome == runtime.OutcomeExited && x.ExitCode != nil && *x.ExitCode == 0 {
		r.State = runtime.CasePassed
	}
	if c := x.Comparison; c != nil && c.Matches != nil && !*c.Matches {
		r.State, r.Difference = runtime.CaseFailed, c.Message
	}
	if j.Quiet {
		r.Stdout, r.Stderr = string(r.stdout), string(r.stderr)
	}
	if event.CaseIndex == nil {
		j.report.Build = &r
		return nil
	}
	r.Name = j.Cases[*event.CaseIndex].Name
	err := j.print(r)
	r.stdout, r.stderr = nil, nil
	j.report.Cases[*event.CaseIndex] = r
	return err
}

// stderrLines is the number of last lines on stderr that are shown for a failed case.
const stderrLines = 10

// print prints a case's line. For a failed case it adds the reason and the end of stderr.
func (j *Job) print(r Result) error {
	if j.Quiet {
		return nil
	}
	word := "pass"
	if r.State != runtime.CasePassed {
		word = "FAIL"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s  %-*s  %5d ms", word, j.width(), output.Plain(r.Name), r.WallMs)
	switch {
	case r.Difference != "":
		fmt.Fprintf(&text, "  %s", output.Plain(r.Difference))
	case r.State != runtime.CasePassed:
		fmt.Fprintf(&text, "  %s", output.Plain(r.why()))
	}
	text.WriteByte('\n')
	if r.State != runtime.CasePassed {
		for _, line := range last(r.stderr, stderrLines) {
			fmt.Fprintf(&text, "      %s\n", output.Plain(strings.ToValidUTF8(string(line), "\uFFFD")))
		}
	}
	_, err := fmt.Fprint(j.Out, text.String())
	return err
}

func (j *Job) width() (width int) {
	for _, c := range j.Cases {
		width = max(width, len(c.Name))
	}
	return min(width, 30)
}

// why describes how a program ended.
func (r Result) why() string {
	if r.Message != "" {
		return r.Message
	}
	return string(r.Outcome)
}

// last returns at most most lines from the end of a text, nil if the text is empty.
func last(text []byte, most int) [][]byte {
	lines := bytes.Split(bytes.TrimRight(text, "\n"), []byte("\n"))
	if len(lines) == 1 && len(lines[0]) == 0 {
		return nil
	}
	return lines[max(0, len(lines)-most):]
}

// Summary returns the result of the job in one line.
func (r Report) Summary() string {
	text := fmt.Sprintf("%d of %d cases passed", r.Passed(), len(r.Cases))
	if n := r.count(runtime.CaseSkipped); n > 0 {
		text += fmt.Sprintf(", %d skipped", n)
	}
	if r.Batch.Outcome == runtime.BatchCompleted || r.Batch.Outcome == runtime.BatchStopped {
		return text
	}
	return text + ": " + r.Batch.Message
}
