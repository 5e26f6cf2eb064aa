package executions

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
)

// batchCases is the number of cases in the row's batch.
const batchCases = 100

// Batch returns the row of a build and 100 cases.
func Batch() []rows.Row {
	return []rows.Row{{
		Name: "batch/100",
		What: "One batch of 100 cases in a claimed runner: from startExecution (POST) to BatchFinished on a WebSocket of its own. Each case runs `cat` with an input of its own. " +
			"The build is `true`: what a real one takes comes on top.",
		Floor: "os/exec: `true`, then `cat` 100 times with the same inputs, one after the other, without a sandbox.",
		Unit:  measure.Milliseconds, Per: "batch", Goals: []measure.Goal{{Of: "p50", AtMost: 1000}},
		Open: func(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
			s, runner, err := b.Claimed(ctx, 1)
			if err != nil {
				return rows.Pair{}, err
			}
			n := b.Ops(5)
			row := func(ctx context.Context, r *measure.Round) error {
				return rows.Repeat(n, func() error { return r.Time(func() error { return runBatch(ctx, s, runner) }) })
			}
			floor := func(ctx context.Context, r *measure.Round) error {
				return rows.Repeat(n, func() error { return r.Time(func() error { return execBatch(ctx) }) })
			}
			return rows.Pair{Row: row, Floor: floor}, rows.Warm(ctx, row, floor)
		},
	}}
}

// inputOf returns the input of a case. Each case has another one.
func inputOf(number int) string { return strings.Repeat(fmt.Sprintln("case", number), 10) }

// runBatch runs a batch in the runner and follows it to its end. A failed case is an error.
func runBatch(ctx context.Context, s *bed.Server, runner string) error {
	in := client.StartExecutionInput{RunnerId: runner, Command: []string{"cat"}, Build: &client.BuildInput{Command: []string{"true"}}}
	for i := range batchCases {
		in.Cases = append(in.Cases, client.CaseInput{Stdin: new(inputOf(i))})
	}
	out, err := client.StartBatch(ctx, s, in)
	if err != nil {
		return err
	}
	var end client.Batch
	err = s.FollowBatch(ctx, out.StartExecution.Batch.Id, nil, func(event client.BatchEvent) error {
		end = event.Batch
		return nil
	})
	if err == nil && (end.Outcome != runtime.BatchCompleted || end.FailedCount > 0) {
		err = fmt.Errorf("the batch ended with %s, and %d failures: %s", end.Outcome, end.FailedCount, end.Message)
	}
	return err
}

// execBatch runs the same programs on this machine.
func execBatch(ctx context.Context) error {
	err := exec.CommandContext(ctx, "true").Run()
	for i := range batchCases {
		cmd := exec.CommandContext(ctx, "cat")
		cmd.Stdin = strings.NewReader(inputOf(i))
		_, failed := cmd.Output()
		err = errors.Join(err, failed)
	}
	return err
}
