package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

type execCancel struct {
	command.Flags
	output.Format
	searchFlags
	DryRun bool     `help:"List the matching executions without cancelling them."`
	Yes    bool     `short:"y" help:"Don't ask for confirmation."`
	IDs    []string `arg:"" optional:"" name:"execution" complete:"execution" help:"Ids of the executions."`
}

// Validate requires ids or at least one filter, so that nobody cancels everything by accident.
func (c *execCancel) Validate() error {
	switch {
	case len(c.IDs) == 0 && !c.given():
		return errors.New("give the ids of executions, or select them with --label, --env, --runner, --command or --since")
	case len(c.IDs) > 0 && c.given():
		return errors.New("give either ids or flags that select executions, not both")
	case len(c.IDs) > 0 && c.DryRun:
		return errors.New("--dry-run works only with flags that select executions: remove --dry-run or the ids")
	}
	return nil
}

// parallelCancels bounds concurrent cancellations. Each can take the server two seconds.
const parallelCancels = 8

// A cancelResult is the result for one execution, as --json prints it.
type cancelResult struct {
	ID        string                 `json:"id"`
	Cancelled bool                   `json:"cancelled"` // by this command
	State     runtime.ExecutionState `json:"state,omitempty"`
	Outcome   runtime.Outcome        `json:"outcome,omitempty"`
	Message   string                 `json:"message,omitempty"`

	batch string // the batch that must end with it, if there is one
	err   error
}

func (c *execCancel) Run(ctx context.Context, s command.Streams, server client.Sender) error {
	all := []cancelResult{} // an empty list isn't null
	for _, id := range c.IDs {
		all = append(all, cancelResult{ID: id})
	}
	if len(c.IDs) == 0 {
		found, err := c.executions(ctx, server, search{states: []runtime.ExecutionState{runtime.ExecutionPending, runtime.ExecutionRunning}})
		if err != nil {
			return err
		}
		if c.DryRun {
			return c.List(s.Out, s.Err, found, executionsTable(found), "no running execution matches: nothing would be cancelled")
		}
		if err := c.confirm(ctx, s, len(found)); err != nil {
			return err
		}
		for _, x := range found {
			all = append(all, cancelResult{ID: x.Id, batch: command.Text(x.BatchId)})
		}
	}
	cancelAll(ctx, server, all)
	return c.report(s, all)
}

// confirm asks the user before it cancels several executions. Without a terminal, or with --yes, it
// only prints the count.
func (c *execCancel) confirm(ctx context.Context, s command.Streams, count int) error {
	if count < 2 {
		return nil
	}
	if c.Yes || !output.OnTerminal(s.In) || !output.OnTerminal(s.Err) {
		_, _ = fmt.Fprintf(s.Err, "rockpool: cancelling %d executions\n", count)
		return nil
	}
	_, _ = fmt.Fprintf(s.Err, "Cancel %d executions? [y/N] ", count)
	answers := make(chan string, 1)
	go func() { // ends with the process at the latest: a read can't be interrupted
		answer, _ := bufio.NewReader(s.In).ReadString('\n')
		answers <- answer
	}()
	select {
	case answer := <-answers:
		if slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))) {
			return nil
		}
		if !strings.HasSuffix(answer, "\n") {
			_, _ = fmt.Fprintln(s.Err)
		}
	case <-ctx.Done():
		_, _ = fmt.Fprintln(s.Err)
	}
	_, _ = fmt.Fprintln(s.Err, "rockpool: nothing was cancelled")
	return command.ExitError(command.CodeInterrupted)
}

// cancelAll cancels executions concurrently and waits for all of them. It fills in the results in
// place.
func cancelAll(ctx context.Context, server client.Sender, all []cancelResult) {
	var group sync.WaitGroup
	slots := make(chan struct{}, parallelCancels)
	for i := range all {
		slots <- struct{}{}
		group.Go(func() {
			all[i].cancel(ctx, server)
			<-slots
		})
	}
	group.Wait()
}

// cancel cancels one execution and fills in the result.
func (x *cancelResult) cancel(ctx context.Context, server client.Sender) {
	before, err := client.GetEnding(ctx, server, x.ID, 0)
	if err != nil {
		x.err = err
		return
	}
	x.State, x.Outcome, x.Message = before.Execution.State, before.Execution.Outcome, before.Execution.Message
	if x.State == runtime.ExecutionFinished {
		return
	}
	if x.batch != "" { // otherwise the batch would start its next case
		if _, x.err = client.CancelBatch(ctx, server, x.batch); x.err != nil {
			return
		}
	}
	out, err := client.CancelExecution(ctx, server, x.ID)
	if err != nil {
		x.err = err
		return
	}
	after := out.CancelExecution.Execution
	x.State, x.Outcome, x.Message = after.State, after.Outcome, after.Message
	x.Cancelled = x.State != runtime.ExecutionFinished || x.Outcome == runtime.OutcomeCancelled
}

// report prints all results and returns the errors joined.
func (c *execCancel) report(s command.Streams, all []cancelResult) error {
	t := output.Table{Head: []string{"EXECUTION", "CANCELLED", "HOW IT ENDED"}}
	var failed []error
	done := 0
	for _, x := range all {
		was, how := "no", "-"
		switch {
		case x.err != nil:
			failed = append(failed, fmt.Errorf("%s: %w", x.ID, x.err))
		case !x.Cancelled:
			how = fmt.Sprintf("already ended: %s (%s)", x.Message, x.Outcome)
		case x.State != runtime.ExecutionFinished:
			was, how = "yes", "still ending"
		default:
			was, how = "yes", string(x.Outcome)
		}
		if x.Cancelled {
			done++
		}
		t.Rows = append(t.Rows, []string{x.ID, was, how})
	}
	forPeople := !c.JSON && c.Output == "table"
	if len(all) > 0 || !forPeople {
		failed = append(failed, c.Print(s.Out, all, t))
	}
	if forPeople {
		count := strconv.Itoa(done) + " executions"
		if done == 1 {
			count = "1 execution"
		}
		_, err := fmt.Fprintf(s.Out, "cancelled %s\n", count)
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}
