package engine

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/test/wait"
)

// TestUsageOfARunningExecution reads usage while output arrives. The fake's programs report no
// usage at their end, and that is recorded.
func TestUsageOfARunningExecution(t *testing.T) {
	b := newBed(t)
	b.environment(t, "e", 1)
	runner := b.claim(t, "e")
	x, err := b.Executions.Start(asServer(t), request.Start{RunnerID: runner.ID, Command: []string{"cat"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	if usage := b.Executions.Usage(asServer(t), x); usage != nil {
		t.Errorf("before it was started: %+v", usage)
	}
	if _, err := b.Executions.WriteStdin(asServer(t), request.Stdin{ExecutionID: x.ID, Data: []byte("hello")}); err != nil {
		t.Fatal(err)
	}
	var shown runtime.UsageNow
	var running runtime.Execution
	wait.For(t, "its usage is shown with what it printed", func() bool {
		if running, err = b.Executions.Get(asServer(t), x.ID, 0); err != nil {
			t.Fatal(err)
		}
		if usage := b.Executions.Usage(asServer(t), running); usage != nil {
			shown = *usage
		}
		return shown.OutputBytes == 5
	})
	if shown.User != time.Second || shown.Memory != 1<<20 || shown.Processes != 2 || shown.Wall <= 0 || shown.At.IsZero() {
		t.Errorf("it uses %+v", shown)
	}
	var used *runtime.RunnerUsage
	wait.For(t, "the agent answers within a second", func() bool { used = b.Runners.Usage(asServer(t), runner); return used != nil })
	if used.CPU != time.Minute || used.Memory != 2<<20 || used.Processes != 3 ||
		used.MemoryLimit != int64(runner.Environment.Resources.MemoryMiB)<<20 || used.ProcessLimit != runner.Environment.Resources.Processes || used.At.IsZero() {
		t.Errorf("its runner uses %+v", used)
	}
	if _, err := b.Executions.WriteStdin(asServer(t), request.Stdin{ExecutionID: x.ID, Close: true}); err != nil {
		t.Fatal(err)
	}
	end := b.await(t, x.ID)
	if u := end.Usage; u.User != 0 || u.PeakMemory != 0 || u.PeakProcesses != 0 || u.OutputBytes != 5 {
		t.Errorf("at the end it had used %+v", u)
	}
	for _, x := range []runtime.Execution{running, end} {
		if usage := b.Executions.Usage(asServer(t), x); usage != nil {
			t.Errorf("after the end: %+v", usage)
		}
	}
}

// TestUsageIsHiddenIfTheAgentIsOldOrLies also checks that only agents of CLAIMED runners are asked.
func TestUsageIsHiddenIfTheAgentIsOldOrLies(t *testing.T) {
	b := newBed(t)
	b.environment(t, "e", 1)
	runner := b.claim(t, "e")
	b.stop()
	for name, response := range map[string]agent.Response{
		"too old": {Protocol: 4, Error: &agent.Error{Code: agent.ErrIncompatible, Message: "the agent doesn't speak this protocol"}},
		"lies":    {Protocol: agent.Protocol, Usage: &agent.Usage{Runner: agent.Used{Memory: -1}}},
		"answers": {Protocol: agent.Protocol, Usage: &agent.Usage{Runner: agent.Used{Memory: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			b.cluster = answeringCluster{b.fake, response}
			b.start(t)
			defer b.stop()
			if name == "answers" {
				wait.For(t, "the agent answers within a second", func() bool { return b.Runners.Usage(asServer(t), runner) != nil })
			} else if used := b.Runners.Usage(asServer(t), runner); used != nil {
				t.Errorf("%+v", used)
			}
		})
	}
	b.cluster = b.fake
	b.start(t)
	for _, state := range []runtime.RunnerState{runtime.RunnerStarting, runtime.RunnerIdle, runtime.RunnerClaiming, runtime.RunnerStopping, runtime.RunnerGone} {
		other := runner
		other.State = state
		if used := b.Runners.Usage(asServer(t), other); used != nil {
			t.Errorf("%s: %+v", state, used)
		}
	}
}

// answeringCluster is a cluster whose agents give one answer.
type answeringCluster struct {
	runtime.Cluster
	response agent.Response
}

func (c answeringCluster) Dial(ctx context.Context, _ runtime.RunnerID) (net.Conn, error) {
	if !runtime.IsSpare(ctx) {
		return nil, errors.New("others would notice")
	}
	ours, theirs := net.Pipe()
	go func() { // ends with ours
		defer theirs.Close()
		if _, _, err := agent.NewFrameReader(theirs, agent.AgentSide).Next(); err != nil {
			return
		}
		if frame, err := agent.AppendJSON(nil, agent.KindResponse, c.response); err == nil {
			_, _ = theirs.Write(frame)
		}
	}()
	return ours, nil
}
