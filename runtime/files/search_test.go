package files

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
)

// silent are runners whose agents don't answer.
type silent struct {
	unreachable
	answers atomic.Bool // they do now, with nothing found
}

func (s *silent) Use(context.Context, runtime.RunnerID) (func(), error) { return func() {}, nil }

func (s *silent) Dial(context.Context, runtime.RunnerID) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		if s.answers.Load() {
			response, _ := agent.AppendJSON(nil, agent.KindResponse, agent.Response{Protocol: agent.Protocol, Found: &agent.Found{}})
			_, _, _ = agent.NewFrameReader(theirs, agent.AgentSide).Next()
			_, _ = theirs.Write(agent.AppendFrame(response, agent.KindEnd, nil))
		}
		_, _ = io.Copy(io.Discard, theirs)
	}()
	return ours, nil
}

// TestSlowRunnersAreLimited checks that one runner, and one tenant, get few of all slots, and that
// an agent has its whole time once a slot is free.
func TestSlowRunnersAreLimited(t *testing.T) {
	for kind, total := range map[string]int{"lists": maxLists, "searches": maxSearches} {
		t.Run(kind, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { limited(t, kind, total) }) })
	}
}

func limited(t *testing.T, kind string, total int) {
	agents := &silent{}
	a := New(agents, nil)
	began := time.Now()
	type ended struct {
		err   error
		after time.Duration
	}
	call := func(ctx context.Context, id string) chan ended {
		done := make(chan ended, 1)
		go func() {
			var err error
			if kind == "lists" {
				_, err = a.Files(ctx, runtime.RunnerID(id), "", true)
			} else {
				_, err = a.SearchFiles(ctx, runtime.RunnerID(id), Search{Name: "*"})
			}
			done <- ended{err, time.Since(began)}
		}()
		return done
	}
	want := func(what string, got ended, code runtime.Code, text string, after time.Duration) {
		t.Helper()
		if runtime.CodeOf(got.err) != code || !strings.Contains(fmt.Sprint(got.err), text) || got.after != after {
			t.Errorf("%s: %v after %v", what, got.err, got.after)
		}
	}
	slow := []chan ended{call(t.Context(), "a/slow"), call(t.Context(), "a/slow")}
	synctest.Wait()
	third := call(t.Context(), "a/slow")
	for i := range total/2 - 2 { // one tenant gets half
		slow = append(slow, call(t.Context(), fmt.Sprint("a/", i)))
	}
	synctest.Wait()
	full := call(t.Context(), "a/another")
	left, cancel := context.WithCancel(t.Context())
	leaving := call(left, "a/another")
	synctest.Wait()
	cancel()
	if got := <-leaving; got.err != context.Canceled {
		t.Error(got.err)
	}
	// Other tenants' calls end while all of these are blocked.
	agents.answers.Store(true)
	for _, other := range []string{"b/1", "b/2", "c/1"} {
		if got := <-call(t.Context(), other); got.err != nil || got.after != 0 {
			t.Errorf("another tenant: %v after %v", got.err, got.after)
		}
	}
	agents.answers.Store(false)
	for _, done := range slow {
		if len(done) > 0 {
			t.Fatalf("a slow call ended early: %v", <-done)
		}
	}
	want("a third of one runner", <-third, runtime.CodeLimitExceeded, "2 "+kind+" are already running in runner a/slow: try again later", slotWait)
	want("one too many", <-full, runtime.CodeLimitExceeded, fmt.Sprintf("its share of this server's %d %s: try again later", total, kind), slotWait)
	time.Sleep(agentWithin - slotWait - time.Second)
	late := call(t.Context(), "a/late")
	for _, done := range slow {
		want("a slow call", <-done, runtime.CodeClusterUnavailable, "took longer than 30s", agentWithin)
	}
	want("one that waited", <-late, runtime.CodeClusterUnavailable, "took longer than 30s", 2*agentWithin)
	if len(a.lists.runners) > 0 || len(a.searches.runners) > 0 {
		t.Error("slots are held")
	}
}
