package engine

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/session"
	"github.com/rockpool/rockpool/test/clustertest"
	"github.com/rockpool/rockpool/test/wait"
)

// far is a fake cluster whose ways to its agents can be cut.
type far struct {
	*clustertest.Fake
	mu    sync.Mutex // guards what follows
	away  bool
	conns []net.Conn
}

func (c *far) Dial(ctx context.Context, id runtime.RunnerID) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away {
		return nil, runtime.Errorf(runtime.CodeClusterUnavailable, "the agent of runner %s can't be reached", id)
	}
	conn, err := c.Fake.Dial(ctx, id)
	if err == nil {
		c.conns = append(c.conns, conn)
	}
	return conn, err
}

func (c *far) cut(away bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.away = away; len(c.conns) > 0; c.conns = c.conns[1:] {
		_ = c.conns[0].Close()
	}
}

// TestUnreachableAgentKeepsItsRunner checks that an agent that can't be reached for a while isn't
// treated as disobedient: its runner stays, and its later reports count.
func TestUnreachableAgentKeepsItsRunner(t *testing.T) {
	t.Parallel()
	b := &bed{fake: clustertest.NewFake(), dir: t.TempDir()}
	c := &far{Fake: b.fake}
	b.cluster = c
	b.start(t)
	t.Cleanup(func() {
		b.stop()
		if err := b.fake.Close(); err != nil {
			t.Error(err)
		}
	})
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	x := b.startCommand(t, request.Start{RunnerID: r.ID, Command: []string{"count", "1", "0", "0"}, Stdin: true})
	wait.For(t, "runs", func() bool {
		x, _ := b.Executions.Get(asServer(t), x.ID, 0)
		return x.State == runtime.ExecutionRunning
	})
	c.cut(true)
	if _, err := b.Executions.Cancel(asServer(t), x.ID); err != nil {
		t.Fatal(err)
	}
	conn, err := b.fake.Dial(asServer(t), r.ID) // the program ends meanwhile
	if err != nil {
		t.Fatal(err)
	}
	direct, err := agent.AttachExecution(asServer(t), conn, agent.Attach{ID: string(x.ID)})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(direct.CloseStdin(), direct.Close()); err != nil {
		t.Fatal(err)
	}
	b.exited(t, r.ID, x.ID)
	if x, err := b.Executions.Get(asServer(t), x.ID, session.AgentLate+2*time.Second); err != nil || x.State == runtime.ExecutionFinished {
		t.Errorf("its end can't be known, and it is %s: %+v, %v", x.State, x.End, err)
	}
	c.cut(false)
	if x := b.await(t, x.ID); x.End.Outcome != runtime.OutcomeExited {
		t.Errorf("%+v", x.End)
	}
	if _, there := b.runnerIndex.get(r.ID); !there {
		t.Error("its runner was removed")
	}
}
