package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/test/wait"
)

// follower is a client that follows one execution, however often the server is killed.
type follower struct {
	key    string
	lines  int
	input  request.Start
	id     runtime.ExecutionID // "" until a start was answered
	cursor string
	got    strings.Builder
	lost   int64
	end    *runtime.Execution
}

// follow repeats unanswered starts, and reads on until ctx ends or the execution has ended.
func (f *follower) follow(ctx context.Context, e *Engine) error {
	if f.id == "" {
		x, err := e.Executions.Start(ctx, f.input)
		if err != nil {
			return nil // the server is being killed: the same key, the next time
		}
		f.id = x.ID
	}
	if f.end != nil {
		return nil
	}
	r, err := e.Executions.Events(ctx, f.id, f.cursor)
	if err != nil {
		select {
		case <-e.jobs.stopped: // its store is closed
			return nil
		case <-ctx.Done():
			return nil
		default:
			return fmt.Errorf("resume after %d bytes: %w", f.got.Len(), err)
		}
	}
	defer r.Close()
	for {
		event, err := r.Next(ctx)
		switch {
		case errors.Is(err, io.EOF) || ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		f.cursor = event.Cursor
		f.got.Write(event.Data)
		f.lost += event.Bytes
		if event.Kind == events.Finished {
			f.end = &event.Execution
		}
	}
}

func (f *follower) want() string {
	var b strings.Builder
	for i := range f.lines {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

// TestKilledServersLoseNothing kills the engine 200 times at random moments, while programs start,
// print and end, and clients resume.
func TestKilledServersLoseNothing(t *testing.T) {
	const seed, rounds = 4, 200
	random := rand.New(rand.NewPCG(seed, 0))
	b := newBed(t)
	b.environment(t, "a", 0)
	var runners []runtime.RunnerID
	for range 3 {
		runners = append(runners, b.claim(t, "a").ID)
	}
	var all []*follower
	for round := range rounds {
		open := 0
		for _, f := range all {
			if f.end == nil {
				open++
			}
		}
		for range min(2, 8-open) {
			f := &follower{key: fmt.Sprint(len(all)), lines: random.IntN(60)}
			f.input = request.Start{RunnerID: runners[random.IntN(3)], Key: f.key, Command: []string{"count", fmt.Sprint(f.lines), fmt.Sprint(random.IntN(3000))}}
			all = append(all, f)
		}
		ctx, cancel := context.WithCancel(asServer(t))
		var clients sync.WaitGroup
		for _, f := range all {
			clients.Go(func() {
				if err := f.follow(ctx, b.Engine); err != nil {
					t.Errorf("round %d: execution %s: %v", round, f.key, err)
				}
			})
		}
		atSomeMoment(random)
		b.kill(cancel)
		clients.Wait()
		b.start(t)
	}
	for _, f := range all {
		if err := f.follow(asServer(t), b.Engine); err != nil {
			t.Fatal(err)
		}
		if f.got.String() != f.want() || f.lost != 0 {
			t.Errorf("execution %s: got %q and %d lost, want %d lines", f.key, f.got.String(), f.lost, f.lines)
		}
		x := f.end
		if x.End.Outcome != runtime.OutcomeExited || x.End.ExitCode != 7 || x.Usage.OutputBytes != int64(len(f.want())) {
			t.Errorf("execution %s: %+v, %+v", f.key, x.End, x.Usage)
		}
		m := x.Timestamps
		if m.StartedAt.Before(m.QueuedAt) || m.FinishedAt.Before(m.StartedAt) || f.lines > 0 && (m.FirstOutputAt.Before(m.StartedAt) || m.FirstOutputAt.After(m.FinishedAt)) {
			t.Errorf("execution %s: %+v", f.key, m)
		}
		if n := b.fake.Begun(x.RunnerID, x.ID); n != 1 {
			t.Errorf("execution %s was started %d times, want 1", f.key, n)
		}
	}
	page, err := b.Executions.List(asServer(t), request.Executions{}, 1, "")
	if err != nil || page.Total != len(all) || b.fake.Starts() != 3 {
		t.Errorf("%d executions in %d runners, want %d in 3: %v", page.Total, b.fake.Starts(), len(all), err)
	}
	t.Logf("%d executions, %d kills", len(all), rounds)
}

// atSomeMoment returns within 30 ms. Its randomness is intended, because a kill can happen at any moment.
func atSomeMoment(random *rand.Rand) {
	<-time.After(time.Duration(random.IntN(30_000)) * time.Microsecond)
}

// kill ends the engine while clients still use it.
func (b *bed) kill(clients context.CancelFunc) {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		b.stop()
	}()
	clients()
	<-stopped
}

// endStdin closes the stdin of a program that waits for that.
func (b *bed) endStdin(t *testing.T, id runtime.ExecutionID) {
	t.Helper()
	if _, err := b.Executions.WriteStdin(asServer(t), request.Stdin{ExecutionID: id, Close: true}); err != nil {
		t.Fatal(err)
	}
}

// acknowledged waits until the agent of a runner with one execution has forgotten this much output.
func (b *bed) acknowledged(t *testing.T, runner runtime.RunnerID, id runtime.ExecutionID, bytes int64) {
	t.Helper()
	wait.For(t, "the agent has forgotten output", func() bool {
		conn, err := b.fake.Dial(asServer(t), runner)
		if err != nil {
			return false
		}
		answer, err := agent.PingAgent(asServer(t), conn)
		return err == nil && slices.ContainsFunc(answer.Executions, func(x agent.Execution) bool { return x.ID == string(id) && x.Held >= bytes })
	})
}
