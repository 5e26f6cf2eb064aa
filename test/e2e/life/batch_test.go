package life

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/e2e/bed"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

// batchReader is a subscriber of a batch that reconnects after each kill of the server.
type batchReader struct {
	id     string
	cursor *string
	output map[int]string // by case; -1: the build
	ended  []int          // cases, in the order in which they ended
	batch  client.Batch   // once it has ended
}

// read reads until the batch ends or the connection breaks.
func (r *batchReader) read(ctx context.Context, b bed.Bed) {
	_ = b.Client.FollowBatch(ctx, r.id, r.cursor, func(event client.BatchEvent) error {
		r.cursor = &event.Cursor
		number := runtime.BuildCase
		if event.CaseIndex != nil {
			number = *event.CaseIndex
		}
		r.output[number] += string(event.Event.Base64)
		switch {
		case event.Type == "BatchFinished":
			r.batch = event.Batch
		case event.Event.Type == "ExecutionFinished":
			r.ended = append(r.ended, number)
		}
		return nil
	})
}

// TestE2EBatchesOutliveTheServer: each case runs once and gets its input. A subscriber gets every
// byte once, however often the server is killed.
func TestE2EBatchesOutliveTheServer(t *testing.T) {
	t.Parallel()
	const cases, kills = 60, 5
	p := bed.ServeBinary(t, bed.DataDir(t))
	runner := p.ClaimUnreleased(t, "shell")
	input := object{"runnerId": runner, "idempotencyKey": "k", "build": object{"shell": "echo building; echo 'echo \"$1\" >>ran; sleep 0.05; cat' >program"}, "command": []string{"sh", "program"}}
	var all []object
	for i := range cases {
		all = append(all, object{"args": []string{fmt.Sprint(i)}, "stdin": strings.Repeat(fmt.Sprint("case ", i, "\n"), 100+i)})
	}
	input["cases"] = all
	start := func() string {
		var out struct {
			StartExecution struct{ Batch struct{ ID string } }
		}
		p.Call(t, `mutation($in: StartExecutionInput!) { startExecution(input: $in) { batch { id } } }`, object{"in": input}, &out)
		return out.StartExecution.Batch.ID
	}
	r := &batchReader{id: start(), output: map[int]string{}}
	for range kills {
		var watching sync.WaitGroup
		watching.Go(func() { r.read(t.Context(), p.Bed) })
		bed.AtSomeMoment(500 * time.Millisecond)
		p.End(t, syscall.SIGKILL, false)
		watching.Wait()
		p = bed.ServeBinary(t, p.Data)
	}
	if again := start(); again != r.id {
		t.Errorf("the key gave %s, not %s", again, r.id)
	}
	wait.For(t, "the subscriber has the end", func() bool {
		r.read(t.Context(), p.Bed)
		return r.batch.State == runtime.BatchFinished
	})
	if r.batch.Outcome != runtime.BatchCompleted || r.batch.EndedCount != cases || r.batch.FailedCount != 0 || r.output[runtime.BuildCase] != "building\n" {
		t.Errorf("%+v, %q", r.batch, r.output[runtime.BuildCase])
	}
	for i, want := range all {
		if got := r.output[i]; got != want["stdin"] {
			t.Errorf("case %d: %d bytes", i, len(got))
		}
	}
	for i, number := range r.ended {
		if number != i-1 {
			t.Errorf("the %dth end is of case %d", i, number)
		}
	}
	var ran strings.Builder
	for i := range cases {
		fmt.Fprintln(&ran, i)
	}
	if got := p.Shell(t, runner, "cat ran"); got.Stream("STDOUT") != ran.String() {
		t.Errorf("these ran: %s", got)
	}
	p.Finish(t)
}

// TestE2EBatchEndsWithItsRunner: however its runner ends, the batch reports it.
func TestE2EBatchEndsWithItsRunner(t *testing.T) {
	t.Parallel()
	p := bed.ServeBinary(t, bed.DataDir(t))
	for _, killed := range []bool{false, true} {
		runner := p.ClaimUnreleased(t, "shell")
		out, err := client.StartBatch(t.Context(), p.Client, client.StartExecutionInput{RunnerId: runner, Shell: new(`"$@"`), Cases: []client.CaseInput{{Args: []string{"true"}}, {Args: []string{"sleep", "1000"}}, {}}})
		if err != nil {
			t.Fatal(err)
		}
		wait.For(t, "the second case runs", func() bool { return len(bed.Running(p.Cgroups, "sleep")) == 1 })
		if killed {
			bed.KillAgent(t, p.Cgroups, runner)
		} else {
			p.Release(t, runner)
		}
		r := &batchReader{id: out.StartExecution.Batch.Id, output: map[int]string{}}
		r.read(t.Context(), p.Bed)
		if r.batch.Outcome != runtime.BatchRunnerGone || r.batch.EndedCount != 2 || r.batch.FailedCount != 1 || r.batch.SkippedCount != 1 {
			t.Errorf("killed %v: %+v", killed, r.batch)
		}
	}
	p.Finish(t)
}
