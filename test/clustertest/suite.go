// Package clustertest defines by tests what a runtime.Cluster must do: Suite must pass on every
// cluster. Fake is a cluster in memory.
package clustertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

// Suite runs the conformance suite. open returns a cluster without environments, and closes it with
// t.Cleanup. All environments are made from prototype, with which a runner must be able to start.
func Suite(t *testing.T, prototype runtime.Environment, open func(t *testing.T) runtime.Cluster) {
	tests := map[string]func(t *testing.T, s suite){
		"environments are stored by compare and swap": testEnvironments,
		"a runner becomes idle, and runs a command":   testRunner,
		"a start is idempotent":                       testStartTwice,
		"a mark needs the epoch before":               testMark,
		"one of many concurrent marks succeeds":       testMarkRace,
		"a marked runner keeps running":               testMarkKeeps,
		"a mark keeps the holder":                     testMarkHolder,
		"a removed runner is gone":                    testRemove,
		"environments 1 and 10 are separate":          testPrefix,
		"a watcher gets a hint of a change":           testWatch,
		"executions":                                  testExecutions,
		"a move renames, and replaces nothing":        testMove,
		"only root changes protected files":           testProtected,
		"a search finds names and lines":              testSearch,
		"changes of files are reported":               testChanges,
		"runners' resources are counted":              testStatus,
		"a runner's events are reported":              testTaskEvents,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test(t, suite{Cluster: open(t), prototype: prototype})
		})
	}
}

// A suite is the cluster under test.
type suite struct {
	runtime.Cluster
	prototype runtime.Environment
}

// put stores an environment of the first revision.
func (s suite) put(t *testing.T, id runtime.EnvironmentID) runtime.Environment {
	t.Helper()
	env := s.prototype
	env.ID, env.Revision, env.RunnerRevision = id, 1, 1
	if err := s.PutEnvironment(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	return env
}

// idle starts a runner and waits until it is idle. The test's cleanup removes it.
func (s suite) idle(t *testing.T, env runtime.Environment) runtime.RunnerID {
	t.Helper()
	id := runtime.NewRunnerID()
	if err := s.Start(t.Context(), id, env, runtime.PriorityRefill); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Remove(context.Background(), id); err != nil {
			t.Error(err)
		}
	})
	s.await(t, id, runtime.RunnerIdle)
	return id
}

// find returns a runner as the cluster lists it, and whether it is listed.
func (s suite) find(t *testing.T, env runtime.EnvironmentID, id runtime.RunnerID) (runtime.Runner, bool) {
	t.Helper()
	all, err := s.Runners(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(r runtime.Runner) bool { return r.ID == id })
	if i < 0 {
		return runtime.Runner{}, false
	}
	return all[i], true
}

// await polls, because Watch may lose hints.
func (s suite) await(t *testing.T, id runtime.RunnerID, state runtime.RunnerState) (r runtime.Runner) {
	t.Helper()
	wait.For(t, fmt.Sprintf("runner %s is %s", id, state), func() (ok bool) {
		r, ok = s.find(t, "", id)
		if ok && r.State == runtime.RunnerGone && state != runtime.RunnerGone {
			t.Fatalf("runner is gone (%s): %s", r.GoneReason, r.Message)
		}
		return ok && r.State == state
	})
	return r
}

// run runs a command and returns what it printed.
func (s suite) run(t *testing.T, id runtime.RunnerID, argv ...string) (string, agent.Exit) {
	t.Helper()
	conn, err := s.Dial(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	session, err := agent.StartExecution(t.Context(), conn, agent.Start{
		ID: string(runtime.NewExecutionID()), Argv: argv, Env: []string{"PATH=/usr/bin:/bin"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	return drain(t, session)
}

func testEnvironments(t *testing.T, s suite) {
	env := s.put(t, "a")
	if err := s.PutEnvironment(t.Context(), env); err != nil {
		t.Errorf("storing what is stored: %v", err)
	}
	env.PoolSize++
	if err := s.PutEnvironment(t.Context(), env); runtime.CodeOf(err) != runtime.CodeConflict {
		t.Errorf("another revision 1: %v, want CONFLICT", err)
	}
	env.Revision = 3
	if err := s.PutEnvironment(t.Context(), env); runtime.CodeOf(err) != runtime.CodeConflict {
		t.Errorf("revision 3 after 1: %v, want CONFLICT", err)
	}
	env.Revision = 2
	if err := s.PutEnvironment(t.Context(), env); err != nil {
		t.Errorf("revision 2 after 1: %v", err)
	}
	all, err := s.Environments(t.Context())
	if err != nil || len(all) != 1 || all[0].Revision != 2 || all[0].PoolSize != env.PoolSize {
		t.Errorf("Environments() = %v, %v", all, err)
	}
	for range 2 {
		if err := s.DeleteEnvironment(t.Context(), "a"); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	if all, err := s.Environments(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("after the delete: %v, %v", all, err)
	}
}

func testRunner(t *testing.T, s suite) {
	id := s.idle(t, s.put(t, "a"))
	conn, err := s.Dial(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agent.PingAgent(t.Context(), conn); err != nil {
		t.Errorf("ping: %v", err)
	}
	if printed, exit := s.run(t, id, "echo", "Hello", "World"); printed != "Hello World\n" || exit.Code != 0 || exit.Signal != "" {
		t.Errorf("echo printed %q and ended with %+v", printed, exit)
	}
	if _, exit := s.run(t, id, "false"); exit.Code != 1 {
		t.Errorf("false ended with %+v", exit)
	}
	if _, err := s.Evidence(t.Context(), id); err != nil {
		t.Errorf("evidence: %v", err)
	}
}

func testExecutions(t *testing.T, s suite) {
	id := s.idle(t, s.put(t, "a"))
	Executions(t, func(ctx context.Context) (net.Conn, error) { return s.Dial(ctx, id) })
}

func testMove(t *testing.T, s suite) {
	id := s.idle(t, s.put(t, "a"))
	dial := func() net.Conn {
		conn, err := s.Dial(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	for _, name := range []string{"a", "taken"} {
		write := agent.Update{Write: []agent.Write{{Path: name, Size: int64(len(name))}}}
		if _, err := agent.UpdateFiles(t.Context(), dial(), write, func(int) io.Reader { return strings.NewReader(name) }); err != nil {
			t.Fatal(err)
		}
	}
	if moved, err := agent.MoveFile(t.Context(), dial(), agent.Move{From: "a", To: "b"}); err != nil || string(moved.Path) != "b" || moved.Size != 1 {
		t.Errorf("%+v, %v", moved, err)
	}
	for _, test := range []struct {
		move agent.Move
		code agent.ErrorCode
	}{{agent.Move{From: "a", To: "c"}, agent.ErrNotFound}, {agent.Move{From: "b", To: "taken"}, agent.ErrDenied}} {
		var refused *agent.Error
		if _, err := agent.MoveFile(t.Context(), dial(), test.move); !errors.As(err, &refused) || refused.Code != test.code {
			t.Errorf("%+v: %v, want %s", test.move, err, test.code)
		}
	}
	for name, size := range map[string]int64{"b": 1, "taken": 5} {
		if info, err := agent.StatFile(t.Context(), dial(), name, false); err != nil || info.Size != size {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
	}
}

// testProtected checks that files belong to programs, and protected ones to root.
func testProtected(t *testing.T, s suite) {
	id := s.idle(t, s.put(t, "a"))
	update := func(of agent.Update) agent.Updated {
		t.Helper()
		updated, err := agent.UpdateFiles(t.Context(), s.dial(t, id), of, func(int) io.Reader { return strings.NewReader("x") })
		if err != nil {
			t.Fatal(err)
		}
		return updated
	}
	for _, protected := range []bool{false, true} {
		made := update(agent.Update{Write: []agent.Write{{Path: "f", Size: 1}}, Protected: protected})
		if made.File == nil || made.File.Mode != 0o644 || (made.File.Owner == "root") != protected {
			t.Errorf("protected %t: %+v", protected, made)
		}
	}
	if kept := update(agent.Update{Delete: []string{"f"}}); len(kept.Failed) != 1 || kept.Failed[0].Code != agent.ErrDenied {
		t.Errorf("a delete of a protected file: %+v", kept)
	}
	if removed := update(agent.Update{Delete: []string{"f"}, Protected: true}); len(removed.Deleted) != 1 {
		t.Errorf("a protected delete: %+v", removed)
	}
}

// write writes files into a runner. Each has two lines, of which the second is its name.
func (s suite) write(t *testing.T, id runtime.RunnerID, names ...string) {
	t.Helper()
	for _, name := range names {
		content := "first\n" + name + "\n"
		write := agent.Update{Write: []agent.Write{{Path: name, Size: int64(len(content))}}}
		if _, err := agent.UpdateFiles(t.Context(), s.dial(t, id), write, func(int) io.Reader { return strings.NewReader(content) }); err != nil {
			t.Fatal(err)
		}
	}
}

func (s suite) dial(t *testing.T, id runtime.RunnerID) net.Conn {
	t.Helper()
	conn, err := s.Dial(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func testSearch(t *testing.T, s suite) {
	id := s.idle(t, s.put(t, "a"))
	s.write(t, id, "a.py", "b.py", "c.txt")
	for _, test := range []struct {
		search agent.Search
		want   []string
		limit  string
	}{
		{agent.Search{Name: "*.py", Most: 9}, []string{"a.py 0 ", "b.py 0 "}, ""},
		{agent.Search{Text: []byte(".txt"), Most: 9}, []string{"c.txt 2 c.txt"}, ""},
		{agent.Search{Name: "b*", Text: []byte("fir"), Most: 9}, []string{"b.py 1 first"}, ""},
		{agent.Search{Name: "*", Most: 1}, []string{"a.py 0 "}, agent.LimitMatches},
	} {
		found, err := agent.SearchFiles(t.Context(), s.dial(t, id), test.search)
		var got []string
		for _, m := range found.Matches {
			got = append(got, fmt.Sprintf("%s %d %s", m.File.Path, m.Line, m.Text))
		}
		if err != nil || !slices.Equal(got, test.want) || found.Limit != test.limit {
			t.Errorf("%+v: %q, %q, %v, want %q", test.search, got, found.Limit, err, test.want)
		}
	}
}

func testChanges(t *testing.T, s suite) {
	id := s.idle(t, s.put(t, "a"))
	watching, err := agent.WatchFiles(t.Context(), s.dial(t, id), agent.Watch{Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Close()
	s.write(t, id, "a")
	expect := func(want ...agent.Change) {
		t.Helper()
		for len(want) > 0 {
			changes, err := watching.Next()
			if err != nil || changes.Lost {
				t.Fatalf("%+v, %v, want %+v", changes, err, want)
			}
			for _, c := range changes.Changes {
				want = slices.DeleteFunc(want, func(w agent.Change) bool { return w.Kind == c.Kind && string(w.Path) == string(c.Path) })
			}
		}
	}
	expect(agent.Change{Path: []byte("a"), Kind: agent.ChangeCreated})
	if _, err := agent.MoveFile(t.Context(), s.dial(t, id), agent.Move{From: "a", To: "b"}); err != nil {
		t.Fatal(err)
	}
	expect(agent.Change{Path: []byte("a"), Kind: agent.ChangeRemoved}, agent.Change{Path: []byte("b"), Kind: agent.ChangeCreated})
	if err := s.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for err == nil { // the removal of files with the runner may be reported
		_, err = watching.Next()
	}
}

func testStatus(t *testing.T, s suite) {
	env := s.put(t, "a")
	before, err := s.Status(t.Context())
	if err != nil || before.Kind == "" || before.Capacity.CPUMHz < 100 || before.Capacity.MemoryMiB < 64 || before.Capacity.CPUMHzPromisable == 0 || before.Capacity.MemoryMiBPromisable == 0 {
		t.Errorf("status: %+v, %v", before, err)
	}
	id := s.idle(t, env)
	want := before
	want.Capacity.Take(env.Resources)
	// Its isolation may use some more.
	if during, err := s.Status(t.Context()); err != nil || during.Capacity.CPUMHzUsed != want.Capacity.CPUMHzUsed ||
		during.Capacity.MemoryMiBUsed < want.Capacity.MemoryMiBUsed || during.Capacity.MemoryMiBUsed > want.Capacity.MemoryMiBUsed+256 {
		t.Errorf("with a runner: %+v, %v, want %+v or some more memory", during, err, want)
	}
	if err := s.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if after, err := s.Status(t.Context()); err != nil || after.Capacity != before.Capacity {
		t.Errorf("after its removal: %+v, %v, want %+v", after, err, before)
	}
}

// testTaskEvents checks the events that every cluster reports; a cluster may report more.
func testTaskEvents(t *testing.T, s suite) {
	id := s.idle(t, s.put(t, "a"))
	reported := func(want ...runtime.TaskEventKind) {
		t.Helper()
		var events []runtime.TaskEvent
		var kinds []runtime.TaskEventKind
		wait.For(t, fmt.Sprintf("events are %v, in this order", want), func() bool { // some are reported a moment late
			var err error
			if events, err = s.TaskEvents(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			kinds = nil
			for _, e := range events {
				if slices.Contains(want, e.Kind) {
					kinds = append(kinds, e.Kind)
				}
			}
			_, _ = s.find(t, "", id) // makes a cluster read its state
			return slices.Equal(kinds, want)
		})
		if len(events) > runtime.KeptTaskEvents {
			t.Errorf("%d events are kept: %+v", len(events), events)
		}
		for i, e := range events {
			if i > 0 && e.At.Before(events[i-1].At) || time.Since(e.At).Abs() > time.Hour {
				t.Errorf("%+v, after %+v", e, events[max(i-1, 0)])
			}
			if text := e.Message(); !strings.HasSuffix(text, ".") || text[0] < 'A' || text[0] > 'Z' || strings.Contains(text, "/") {
				t.Errorf("%s has the message %q", e.Kind, text)
			}
		}
	}
	reported(runtime.TaskPlaced, runtime.TaskReady)
	if err := s.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	reported(runtime.TaskPlaced, runtime.TaskReady, runtime.TaskEnded)
	if events, err := s.TaskEvents(t.Context(), runtime.NewRunnerID()); err != nil || len(events) > 0 {
		t.Errorf("of a runner that never was: %+v, %v", events, err)
	}
}

func testStartTwice(t *testing.T, s suite) {
	env := s.put(t, "a")
	id := s.idle(t, env)
	before, _ := s.find(t, "a", id)
	if err := s.Start(t.Context(), id, env, runtime.PriorityRefill); err != nil {
		t.Fatal(err)
	}
	after, ok := s.find(t, "a", id)
	if !ok || !after.CreatedAt.Equal(before.CreatedAt) || after.State != runtime.RunnerIdle {
		t.Errorf("after a second start: %+v, before: %+v", after, before)
	}
}

func claim(epoch int, key string) runtime.Claim {
	return runtime.Claim{
		Epoch: epoch, Key: key, ClaimedAt: time.Unix(1_700_000_000, 0), ExpiresAt: time.Unix(1_900_000_000, 0),
		InactivityTimeout: time.Minute, Labels: []runtime.Label{{Name: "user", Value: "x"}},
	}
}

func testMark(t *testing.T, s suite) {
	id := s.idle(t, s.put(t, "a"))
	for _, step := range []struct {
		claim runtime.Claim
		want  runtime.Code
	}{
		{claim(2, "x"), runtime.CodeConflict}, // nothing is at epoch 1
		{claim(1, "x"), ""},
		{claim(1, "x"), ""},                   // stored already
		{claim(1, "y"), runtime.CodeConflict}, // another claim
		{claim(3, "x"), runtime.CodeConflict},
		{claim(2, "x"), ""}, // a renewal
		{claim(1, "x"), runtime.CodeConflict},
	} {
		err := s.Mark(t.Context(), id, step.claim)
		if (err == nil) != (step.want == "") || (err != nil && runtime.CodeOf(err) != step.want) {
			t.Errorf("mark epoch %d key %s: %v, want %q", step.claim.Epoch, step.claim.Key, err, step.want)
		}
	}
	r, _ := s.find(t, "a", id)
	if r.State != runtime.RunnerClaimed || !r.Claim.Equal(claim(2, "x")) {
		t.Errorf("the runner is %s with %+v", r.State, r.Claim)
	}
	if err := s.Mark(t.Context(), runtime.NewRunnerID(), claim(1, "x")); runtime.CodeOf(err) != runtime.CodeRunnerGone {
		t.Errorf("mark of no runner: %v, want RUNNER_GONE", err)
	}
}

func testMarkHolder(t *testing.T, s suite) {
	id := s.idle(t, s.put(t, "a"))
	held := claim(1, "")
	held.Holder, held.HolderScope = "ada / \"Übung 3\" <x>", "physics"
	other := held
	other.Holder = "eve"
	elsewhere := held
	elsewhere.HolderScope = "chemistry"
	for _, step := range []struct {
		claim runtime.Claim
		want  runtime.Code
	}{{held, ""}, {held, ""}, {other, runtime.CodeConflict}, {elsewhere, runtime.CodeConflict}} {
		if err := s.Mark(t.Context(), id, step.claim); (err == nil) != (step.want == "") || err != nil && runtime.CodeOf(err) != step.want {
			t.Errorf("mark for %s of %s: %v, want %q", step.claim.Holder, step.claim.HolderScope, err, step.want)
		}
	}
	if r, _ := s.find(t, "a", id); !r.Claim.Equal(held) || r.Claim.Holder != held.Holder || r.Claim.HolderScope != held.HolderScope {
		t.Errorf("the runner has %+v", r.Claim)
	}
}

func testMarkRace(t *testing.T, s suite) {
	id := s.idle(t, s.put(t, "a"))
	var group sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 20 {
		group.Go(func() {
			if s.Mark(t.Context(), id, claim(1, strconv.Itoa(i))) == nil {
				mu.Lock()
				defer mu.Unlock()
				won++
			}
		})
	}
	group.Wait()
	if won != 1 {
		t.Errorf("%d of 20 marks won, want 1", won)
	}
}

func testMarkKeeps(t *testing.T, s suite) {
	id := s.idle(t, s.put(t, "a"))
	conn, err := s.Dial(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	session, err := agent.StartExecution(t.Context(), conn, agent.Start{
		ID: "cat", Argv: []string{"cat"}, Env: []string{"PATH=/usr/bin:/bin"}, Stdin: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if event, err := session.Next(); err != nil || event.Kind != agent.KindStarted {
		t.Fatal(event, err)
	}
	if err := s.Mark(t.Context(), id, claim(1, "x")); err != nil {
		t.Fatal(err)
	}
	go func() {
		if _, err := session.WriteStdin(t.Context(), 0, []byte("still here")); err != nil {
			t.Error(err)
		}
		if err := session.CloseStdin(); err != nil {
			t.Error(err)
		}
	}()
	if printed, exit := drain(t, session); printed != "still here" || exit.Code != 0 {
		t.Errorf("printed %q and ended with %+v", printed, exit)
	}
}

func testRemove(t *testing.T, s suite) {
	id := s.idle(t, s.put(t, "a"))
	for range 2 {
		if err := s.Remove(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if r, ok := s.find(t, "", id); ok {
		t.Errorf("still listed: %+v", r)
	}
	if conn, err := s.Dial(t.Context(), id); runtime.CodeOf(err) != runtime.CodeRunnerGone {
		t.Errorf("dial: %v, %v, want RUNNER_GONE", conn, err)
	}
	if _, err := s.Evidence(t.Context(), id); runtime.CodeOf(err) != runtime.CodeRunnerGone {
		t.Errorf("evidence: %v, want RUNNER_GONE", err)
	}
}

func testPrefix(t *testing.T, s suite) {
	one := s.idle(t, s.put(t, "1"))
	ten := s.idle(t, s.put(t, "10"))
	for env, want := range map[runtime.EnvironmentID]runtime.RunnerID{"1": one, "10": ten} {
		all, err := s.Runners(t.Context(), env)
		if err != nil || len(all) != 1 || all[0].ID != want || all[0].Environment.ID != env {
			t.Errorf("Runners(%s) = %v, %v", env, all, err)
		}
	}
}

func testWatch(t *testing.T, s suite) {
	env := s.put(t, "a")
	ctx, cancel := context.WithCancel(t.Context())
	hints := make(chan runtime.EnvironmentID, 1)
	watching := make(chan error, 1)
	go func() {
		watching <- s.Watch(ctx, func(id runtime.EnvironmentID) {
			select {
			case hints <- id:
			default:
			}
		})
	}()
	if id := wait.Receive(t, hints, "the first hint"); id != "" {
		t.Errorf("the first hint is for %q, want all", id)
	}
	s.idle(t, env)
	if id := wait.Receive(t, hints, "a hint"); id != "a" && id != "" {
		t.Errorf("hint for %q", id)
	}
	cancel()
	if err := <-watching; !errors.Is(err, context.Canceled) {
		t.Errorf("Watch returned %v", err)
	}
}
