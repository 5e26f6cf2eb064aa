package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/test/clustertest"
	"github.com/rockpool/rockpool/test/refusal"
	"github.com/rockpool/rockpool/test/wait"
)

// evil is a fake cluster whose agents answer as a test determines.
type evil struct {
	*clustertest.Fake
	agent atomic.Pointer[func(net.Conn)] // nil means a good one
	dials atomic.Int64
}

func (c *evil) Dial(ctx context.Context, id runtime.RunnerID) (net.Conn, error) {
	c.dials.Add(1)
	serve := c.agent.Load()
	if serve == nil {
		return c.Fake.Dial(ctx, id)
	}
	runners, err := c.Runners(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, r := range runners {
		if r.ID == id {
			ours, theirs := net.Pipe()
			go (*serve)(theirs)
			return ours, nil
		}
	}
	return nil, runtime.Errorf(runtime.CodeRunnerGone, "runner %s is gone", id)
}

// hostile returns an engine with a claimed runner whose agent is serve.
func hostile(t *testing.T, serve func(net.Conn)) (*bed, *evil, runtime.Runner) {
	t.Helper()
	t.Parallel()
	b := &bed{fake: clustertest.NewFake(), dir: t.TempDir()}
	c := &evil{Fake: b.fake}
	b.cluster = c
	b.start(t)
	t.Cleanup(func() {
		b.stop()
		if err := b.fake.Close(); err != nil {
			t.Error(err)
		}
	})
	b.environment(t, "a", 2)
	r := b.claim(t, "a")
	c.agent.Store(&serve)
	return b, c, r
}

// hello answers a request as an agent does that has started the command.
func hello(t *testing.T, conn net.Conn) bool {
	frames := agent.NewFrameReader(conn, agent.AgentSide)
	if _, _, err := frames.Next(); err != nil {
		return false
	}
	out, err := agent.AppendJSON(nil, agent.KindResponse, agent.Response{Protocol: agent.Protocol})
	if err == nil {
		out, err = agent.AppendJSON(out, agent.KindStarted, agent.Started{})
	}
	if err != nil {
		t.Error(err)
	}
	_, err = conn.Write(out)
	return err == nil
}

func (b *bed) startIn(t *testing.T, id runtime.RunnerID, limit int) runtime.ExecutionID {
	t.Helper()
	x, err := b.Executions.Start(asServer(t), request.Start{RunnerID: id, Command: []string{"x"}, TimeLimit: &limit, OutputLimit: ptr[int64](1 << 20)})
	if err != nil {
		t.Fatal(err)
	}
	return x.ID
}

func TestSilentAgentLosesItsRunner(t *testing.T) {
	b, _, r := hostile(t, func(conn net.Conn) {
		defer conn.Close()
		one := make([]byte, 1)
		for {
			if _, err := conn.Read(one); err != nil {
				return
			}
		}
	})
	limited, cancelled := b.startIn(t, r.ID, 1), b.startIn(t, r.ID, 60)
	if _, err := b.Executions.Cancel(asServer(t), cancelled); err != nil {
		t.Error(err)
	}
	if x := b.await(t, cancelled); x.End.Outcome != runtime.OutcomeCancelled {
		t.Errorf("cancelled: %+v", x.End)
	}
	// The first that is overdue takes the runner, and with it the other.
	if x := b.await(t, limited); x.End.Outcome != runtime.OutcomeTimeLimit && x.End.Outcome != runtime.OutcomeRunnerGone {
		t.Errorf("limited: %+v", x.End)
	}
}

func TestAgentThatIgnoresLimitsLosesItsRunner(t *testing.T) {
	b, _, r := hostile(t, func(conn net.Conn) {
		defer conn.Close()
		if !hello(t, conn) {
			return
		}
		go func() { // reads the server's frames and ignores them
			frames := agent.NewFrameReader(conn, agent.AgentSide)
			for {
				if _, _, err := frames.Next(); err != nil {
					return
				}
			}
		}()
		block := make([]byte, agent.MaxData)
		for offset := int64(0); ; offset += agent.MaxData {
			if _, err := conn.Write(agent.AppendOutput(nil, 1, offset, time.Second, block)); err != nil {
				return
			}
		}
	})
	x := b.await(t, b.startIn(t, r.ID, 60))
	if x.End.Outcome != runtime.OutcomeOutputLimit || x.Usage.OutputBytes > 1<<20 {
		t.Errorf("%+v after %d bytes", x.End, x.Usage.OutputBytes)
	}
	wait.For(t, "the runner is removed", func() bool { _, there := b.runnerIndex.get(r.ID); return !there })
}

func TestBrokenStreamsAreReopened(t *testing.T) {
	b, c, r := hostile(t, func(conn net.Conn) {
		hello(t, conn)
		conn.Close()
	})
	before := c.dials.Load()
	x := b.await(t, b.startIn(t, r.ID, 1))
	if n := c.dials.Load() - before; n > 100 {
		t.Errorf("%d streams were opened", n)
	}
	if x.End.Outcome != runtime.OutcomeTimeLimit {
		t.Errorf("%+v", x.End)
	}
}

// TestAgentThatDoesNotReadCannotBlockTheServer checks that such an agent doesn't block the pool.
func TestAgentThatDoesNotReadCannotBlockTheServer(t *testing.T) {
	b, c, r := hostile(t, func(conn net.Conn) { hello(t, conn) })
	id := b.startIn(t, r.ID, 60)
	wait.For(t, "runs", func() bool { x, _ := b.Executions.Get(asServer(t), id, 0); return x.State == runtime.ExecutionRunning })
	go b.Executions.Cancel(asServer(t), id)
	c.agent.Store(nil)
	b.claim(t, "a")
	if x, err := b.Executions.Get(asServer(t), id, 0); err != nil || x.State != runtime.ExecutionRunning {
		t.Errorf("the claim waited for the agent: %+v, %v", x, err)
	}
	go b.Runners.Release(asServer(t), r.ID)
	b.claim(t, "a")
	if x := b.await(t, id); x.End.Outcome != runtime.OutcomeRunnerGone && x.End.Outcome != runtime.OutcomeCancelled {
		t.Errorf("%+v", x.End)
	}
}

// TestEndIsStoredOnceTheStoreWorksAgain checks that the end isn't published before.
func TestEndIsStoredOnceTheStoreWorksAgain(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	db := b.database(t)
	if _, err := db.Exec(`CREATE TRIGGER refuse BEFORE UPDATE ON executions BEGIN SELECT RAISE(FAIL, 'refused'); END`); err != nil {
		t.Fatal(err)
	}
	x, err := b.Executions.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"echo", "x"}})
	if err != nil {
		t.Fatal(err)
	}
	if x, err := b.Executions.Get(asServer(t), x.ID, time.Second); err != nil || x.State == runtime.ExecutionFinished {
		t.Errorf("before it was stored: %+v, %v", x, err)
	}
	if _, err := db.Exec("DROP TRIGGER refuse"); err != nil {
		t.Fatal(err)
	}
	if output, all := b.events(t, x.ID, ""); output != "x\n" || all[len(all)-1].Execution.End.Outcome != runtime.OutcomeExited {
		t.Errorf("%q, %+v", output, all)
	}
	if x := b.await(t, x.ID); x.End.Outcome != runtime.OutcomeExited {
		t.Errorf("%+v", x)
	}
}

func TestSharedCountersAreNotAttributedToOneExecution(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	var ids []runtime.ExecutionID
	for range 2 {
		x, err := b.Executions.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"count", "1", "0", "0"}, Stdin: true})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, x.ID)
	}
	wait.For(t, "both run", func() bool {
		x, _ := b.Executions.Get(asServer(t), ids[0], 0)
		y, _ := b.Executions.Get(asServer(t), ids[1], 0)
		return x.State == runtime.ExecutionRunning && y.State == runtime.ExecutionRunning
	})
	b.fake.Count(r.ID, runtime.Evidence{ProcessLimitHits: 1, OOMKills: 1})
	for _, id := range ids {
		b.endStdin(t, id)
		if x := b.await(t, id); x.End.Outcome != runtime.OutcomeExited {
			t.Errorf("%+v", x.End)
		}
	}
}

// TestRunContinuesWithoutItsCaller checks that the run continues as requested, and that a retry finds it.
func TestRunContinuesWithoutItsCaller(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	gone, leave := context.WithCancel(asServer(t))
	leave()
	for i := range 20 { // which of the two continues first differs
		in := request.Run{EnvironmentID: "a", Command: []string{"echo", "x"}, WaitFor: ptr(patient), Key: fmt.Sprint(i)}
		if _, err := b.Executions.Run(gone, in); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		x, err := b.Executions.Run(asServer(t), in)
		if err != nil {
			t.Fatal(err)
		}
		b.await(t, x.ID)
		if stored, found, err := b.store.ExecutionByKey(asServer(t), "run/"+in.Key); err != nil || !found || stored.ID != x.ID || stored.End.Outcome != runtime.OutcomeExited {
			t.Errorf("%+v, %t, %v", stored, found, err)
		}
		b.wantOutput(t, x.ID, "x\n")
	}
}

// TestRunIsIdempotent disconnects the client while it waits, and retries.
func TestRunIsIdempotent(t *testing.T) {
	b := newBed(t)
	begun, goOn := make(chan struct{}, 1), make(chan struct{})
	b.fake.OnStart(func(runtime.RunnerID) error { begun <- struct{}{}; <-goOn; return nil })
	b.environment(t, "a", 0)
	in := request.Run{EnvironmentID: "a", Command: []string{"sleep", "0.3"}, WaitFor: ptr(patient), Key: "k",
		Files: []runtime.FileWrite{{Path: "f", Data: []byte("x")}}}
	ctx, leave := context.WithCancel(asServer(t))
	left := make(chan error, 1)
	go func() {
		_, err := b.Executions.Run(ctx, in)
		left <- err
	}()
	wait.Receive(t, begun, "a runner starts")
	leave()
	if err := wait.Receive(t, left, "the first call ends"); err == nil {
		t.Fatal("the first was answered")
	}
	close(goOn)
	first, err := b.Executions.Run(asServer(t), in)
	if err != nil {
		t.Fatal(err)
	}
	second, err := b.Executions.Run(asServer(t), in)
	if err != nil || second.ID != first.ID {
		t.Errorf("%+v, %v", second, err)
	}
	if x := b.await(t, first.ID); x.End.Outcome != runtime.OutcomeExited {
		t.Errorf("%+v", x.End)
	}
	if n := b.fake.Starts(); n != 1 {
		t.Errorf("%d runners, want 1", n)
	}
}

func TestDeleteAndPutAgree(t *testing.T) {
	b := newBed(t)
	for range 300 {
		b.environment(t, "a", 1)
		if _, err := b.Environments.Delete(asServer(t), "a", true); err != nil {
			t.Fatal(err)
		}
	}
	b.environment(t, "a", 1)
	b.claim(t, "a")
}

func TestClosedStdin(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	x, err := b.Executions.Start(asServer(t), request.Start{RunnerID: r.ID, Shell: ptr("sleep 60"), Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a repeat is no error
		n, err := b.Executions.WriteStdin(asServer(t), request.Stdin{ExecutionID: x.ID, Data: []byte("abc"), Offset: ptr[int64](0), Close: true})
		if err != nil || n != 3 {
			t.Error(n, err)
		}
	}
	_, err = b.Executions.WriteStdin(asServer(t), request.Stdin{ExecutionID: x.ID, Data: []byte("def")})
	refusal.Want(t, err, runtime.CodeConflict, "")
	if _, err := b.Runners.Release(asServer(t), r.ID); err != nil {
		t.Fatal(err)
	}
	b.await(t, x.ID)
	_, err = b.Executions.WriteStdin(asServer(t), request.Stdin{ExecutionID: x.ID, Data: []byte("def")})
	refusal.Want(t, err, runtime.CodeRunnerGone, "")
}
