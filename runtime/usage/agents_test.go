package usage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
)

// A world has agents, and runs the goroutines that an Agents spawns.
type world struct {
	*Agents
	asked   atomic.Int64
	spawned sync.WaitGroup
	end     context.CancelFunc
}

// newWorld returns agents whose answers the test determines.
func newWorld(t *testing.T, answer func(n int64, id runtime.RunnerID, conn net.Conn)) *world {
	w := &world{}
	ctx, end := context.WithCancel(t.Context())
	w.end = end
	w.Agents = NewAgents(func(_ context.Context, id runtime.RunnerID) (net.Conn, error) {
		n := w.asked.Add(1)
		ours, theirs := net.Pipe()
		w.spawned.Go(func() {
			defer theirs.Close()
			if _, _, err := agent.NewFrameReader(theirs, agent.AgentSide).Next(); err == nil {
				answer(n, id, theirs)
			}
		})
		return ours, nil
	}, func(f func(context.Context)) error {
		w.spawned.Go(func() { f(ctx) })
		return nil
	})
	return w
}

func (w *world) close() {
	w.end()
	w.spawned.Wait()
}

// counts answers with the number of questions so far.
func counts(n int64, _ runtime.RunnerID, conn net.Conn) {
	frame, err := agent.AppendJSON(nil, agent.KindResponse, agent.Response{Protocol: agent.Protocol, Usage: &agent.Usage{Runner: agent.Used{Memory: n}}})
	if err == nil {
		_, _ = conn.Write(frame)
	}
}

// hangs never answers.
func hangs(_ int64, _ runtime.RunnerID, conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// TestOnceASecond checks that an agent is asked once a second for any number of callers, and not at
// all without any.
func TestOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, counts)
		defer w.close()
		for second := int64(1); second <= 3; second++ {
			began := time.Now()
			for range 2 {
				var callers sync.WaitGroup
				for range 500 {
					callers.Go(func() {
						if usage, at := w.Usage(t.Context(), "r", "t"); usage.Runner.Memory != second || !at.Equal(began) {
							t.Errorf("second %d: %+v at %v", second, usage, at)
						}
					})
				}
				callers.Wait()
				time.Sleep(every/2 + time.Millisecond)
			}
		}
		time.Sleep(time.Hour)
		w.mu.Lock()
		defer w.mu.Unlock()
		if n := w.asked.Load(); n != 3 || len(w.Agents.asked) != 0 {
			t.Errorf("asked %d times, %d are kept", n, len(w.Agents.asked))
		}
	})
}

// someHang hangs in runners whose ids begin with h, and counts in others.
func someHang(n int64, id runtime.RunnerID, conn net.Conn) {
	if id[0] == 'h' {
		hangs(n, id, conn)
	} else {
		counts(n, id, conn)
	}
}

// TestWaitsAreBounded checks that no caller waits longer than a second, however many agents don't
// answer. Other agents' answers arrive, and agents that failed aren't asked for a while.
func TestWaitsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, someHang)
		defer w.close()
		page := func(most time.Duration) (answers int64) {
			var callers sync.WaitGroup
			var answered atomic.Int64
			began := time.Now()
			for i := range 1000 {
				id := runtime.RunnerID(fmt.Sprintf("a%d", i))
				if i%50 == 0 { // fewer than are requested of a tenant concurrently
					id = runtime.RunnerID(fmt.Sprintf("h%d", i))
				}
				callers.Go(func() {
					if _, at := w.Usage(t.Context(), id, "t"); !at.IsZero() {
						answered.Add(1)
					}
				})
			}
			callers.Wait()
			if took := time.Since(began); took > most {
				t.Errorf("the page took %v", took)
			}
			return answered.Load()
		}
		if n := page(patience); n != 980 {
			t.Errorf("%d answers, want 980", n)
		}
		time.Sleep(time.Millisecond)
		if n := page(0); n != 980 || w.asked.Load() != 1980 {
			t.Errorf("%d answers, asked %d times", n, w.asked.Load())
		}
		time.Sleep(again)
		if page(patience); w.asked.Load() != 2980 {
			t.Errorf("asked %d times after a while, want 2980", w.asked.Load())
		}
	})
}

// TestUnavailableUsageIsZero covers callers that give up, and agents that can't be asked.
func TestUnavailableUsageIsZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, hangs)
		defer w.close()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, at := w.Usage(ctx, "r", "t"); !at.IsZero() || time.Since(began) != 300*time.Millisecond {
			t.Errorf("the caller left after %v", time.Since(began))
		}
		refused := NewAgents(nil, func(func(context.Context)) error { return errors.New("stopping") })
		if _, at := refused.Usage(t.Context(), "r", "t"); !at.IsZero() || len(refused.asked) != 0 {
			t.Error("a server that stops asked")
		}
	})
}

// TestASilentAgentKeepsItsLastAnswer checks that the last answer is returned with its time for a
// while, and nothing afterwards.
func TestASilentAgentKeepsItsLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(n int64, id runtime.RunnerID, conn net.Conn) {
			if n == 1 {
				counts(n, id, conn)
			} else {
				hangs(n, id, conn)
			}
		})
		defer w.close()
		began := time.Now()
		w.Usage(t.Context(), "r", "t")
		for range 7 {
			time.Sleep(every + time.Millisecond) // in addition to the second that an agent may take
			if usage, at := w.Usage(t.Context(), "r", "t"); usage.Runner.Memory != 1 || !at.Equal(began) {
				t.Errorf("after %v: %+v at %v", time.Since(began), usage, at)
			}
		}
		time.Sleep(time.Until(began.Add(kept + time.Millisecond)))
		if _, at := w.Usage(t.Context(), "r", "t"); !at.IsZero() {
			t.Errorf("after %v it is still %v", time.Since(began), at)
		}
	})
}

// TestSilentAgentsOfOneTenant checks that they don't keep others' agents from being asked, and that
// agents that weren't asked are asked the next time.
func TestSilentAgentsOfOneTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, someHang)
		defer w.close()
		page := func() {
			began := time.Now()
			var callers sync.WaitGroup
			for i := range 2 * atOnce {
				callers.Go(func() { w.Usage(t.Context(), runtime.RunnerID(fmt.Sprintf("h%d", i)), "silent") })
			}
			synctest.Wait()
			if _, at := w.Usage(t.Context(), "a", "other"); !at.Equal(began) {
				t.Errorf("the other tenant's agent answered at %v, not %v", at, began)
			}
			callers.Wait()
		}
		page()
		time.Sleep(every / 2)
		if n := w.asked.Load(); n != ofTenant+1 {
			t.Errorf("%d were asked", n)
		}
		page()
		time.Sleep(every / 2)
		if n := w.asked.Load(); n != 2*(ofTenant+1) {
			t.Errorf("%d were asked after all", n)
		}
		time.Sleep(time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.Agents.asked) != 0 {
			t.Errorf("%d questions are kept, want 0", len(w.Agents.asked))
		}
	})
}
