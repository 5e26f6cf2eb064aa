package engine

import (
	"database/sql"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/session"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/test/refusal"
	"github.com/rockpool/rockpool/test/wait"
)

// startCommand starts a command and waits until it runs.
func (b *bed) startCommand(t *testing.T, in request.Start) runtime.Execution {
	t.Helper()
	x, err := b.Executions.Start(asServer(t), in)
	if err != nil {
		t.Fatal(err)
	}
	wait.For(t, "it runs", func() bool {
		x, err = b.Executions.Get(asServer(t), x.ID, 0)
		return err == nil && x.State != runtime.ExecutionPending
	})
	return x
}

// exited waits until the agent has seen the end of an execution.
func (b *bed) exited(t *testing.T, runner runtime.RunnerID, id runtime.ExecutionID) {
	t.Helper()
	wait.For(t, "it exits", func() bool {
		conn, err := b.fake.Dial(asServer(t), runner)
		if err != nil {
			return false
		}
		answer, _ := agent.PingAgent(asServer(t), conn) // no answer: it isn't known yet
		for _, x := range answer.Executions {
			if x.ID == string(id) {
				return x.Exited
			}
		}
		return false
	})
}

// database opens the engine's database. While the engine runs, each waits for the other's writes.
func (b *bed) database(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", fmt.Sprintf("file:%s?_txlock=immediate&_pragma=busy_timeout(%d)", filepath.Join(b.dir, "db"), wait.Limit.Milliseconds()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func TestEndDuringDowntimeIsRestored(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	began := time.Now()
	x := b.startCommand(t, request.Start{RunnerID: r.ID, Command: []string{"count", "50", "2000"}})
	b.stop()
	b.exited(t, r.ID, x.ID)
	over := x.Timestamps.QueuedAt.Add(time.Since(began)) // by the execution's clock
	b.start(t)
	end := b.await(t, x.ID)
	if end.End.Outcome != runtime.OutcomeExited || end.End.ExitCode != 7 || !end.Timestamps.StartedAt.Before(over) || !end.Timestamps.FirstOutputAt.Before(over) {
		t.Errorf("%+v %+v", end.End, end.Timestamps)
	}
	if output, _ := b.events(t, x.ID, ""); output != (&follower{lines: 50}).want() {
		t.Errorf("%q", output)
	}
}

// TestRecordedExecutionIsStartedByTheNextServer kills the server before it contacts the agent.
func TestRecordedExecutionIsStartedByTheNextServer(t *testing.T) {
	deaf := func(conn net.Conn) { _ = conn.Close() }
	b, c, r := hostile(t, deaf)
	x, err := b.Executions.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"echo", "x"}, Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	cancelled, err := b.Executions.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"sleep", "60"}})
	if err != nil {
		t.Fatal(err)
	}
	b.sessions.Session(cancelled.ID).Kill(asServer(t), runtime.OutcomeCancelled)
	b.stop()
	c.agent.Store(nil)
	b.start(t)
	if end := b.await(t, x.ID); end.End.Outcome != runtime.OutcomeExited || b.fake.Begun(r.ID, x.ID) != 1 {
		t.Errorf("%+v, started %d times", end.End, b.fake.Begun(r.ID, x.ID))
	}
	if end := b.await(t, cancelled.ID); end.End.Outcome != runtime.OutcomeCancelled {
		t.Errorf("%+v", end.End)
	}
	again, err := b.Executions.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"echo", "x"}, Key: "k"})
	if err != nil || again.ID != x.ID {
		t.Errorf("the key gave %s, not %s: %v", again.ID, x.ID, err)
	}
}

func TestExecutionUnknownToItsAgentIsLost(t *testing.T) {
	b, c, r := hostile(t, nil)
	c.agent.Store(nil)
	x := b.startCommand(t, request.Start{RunnerID: r.ID, Command: []string{"count", "100000", "1000"}})
	wait.For(t, "it prints", func() bool {
		chunks, _, _, err := b.output(x.ID, "", 1<<20)
		printed := 0
		for _, c := range chunks {
			printed += len(c.Data)
		}
		return err == nil && printed >= len("0\n1\n")
	})
	b.stop()
	other := func(conn net.Conn) {
		defer conn.Close()
		if _, _, err := agent.NewFrameReader(conn, agent.AgentSide).Next(); err != nil {
			return
		}
		frame, err := agent.AppendJSON(nil, agent.KindResponse, agent.Response{Protocol: 1,
			Error: &agent.Error{Code: agent.ErrNotFound, Field: "id", Message: "no such execution"}})
		if err == nil {
			_, _ = conn.Write(frame)
		}
	}
	c.agent.Store(&other)
	b.start(t)
	end := b.await(t, x.ID)
	output, all := b.events(t, x.ID, "")
	if end.End.Outcome != runtime.OutcomeLost || !strings.HasPrefix(output, "0\n1\n") || end.Usage.OutputBytes != int64(len(output)) || len(all) < 3 {
		t.Errorf("%+v, %q", end, output)
	}
}

func TestRunnerGoneDuringDowntimeEndsItsExecutions(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 2)
	told, silent := b.claim(t, "a"), b.claim(t, "a")
	x := b.startCommand(t, request.Start{RunnerID: told.ID, Command: []string{"sleep", "60"}})
	y := b.startCommand(t, request.Start{RunnerID: silent.ID, Command: []string{"sleep", "60"}})
	b.stop()
	b.fake.Kill(told.ID, runtime.GoneOutOfMemory)
	if err := b.fake.Remove(asServer(t), silent.ID); err != nil {
		t.Fatal(err)
	}
	b.start(t)
	if end := b.await(t, x.ID).End; end.Outcome != runtime.OutcomeRunnerGone || end.GoneReason != runtime.GoneOutOfMemory {
		t.Errorf("%+v", end)
	}
	if end := b.await(t, y.ID).End; end.Outcome != runtime.OutcomeLost {
		t.Errorf("%+v", end)
	}
}

// TestGoneReasonSurvivesARestart kills the server after it removed a runner and before it stored
// the end of the execution there. A runner that was about to be removed, and wasn't, continues.
func TestGoneReasonSurvivesARestart(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 2)
	removed, kept := b.claim(t, "a"), b.claim(t, "a")
	x := b.startCommand(t, request.Start{RunnerID: removed.ID, Command: []string{"sleep", "60"}})
	y := b.startCommand(t, request.Start{RunnerID: kept.ID, Command: []string{"count", "50", "2000"}})
	for _, r := range []runtime.Runner{removed, kept} {
		r.GoneReason = runtime.GoneReleased
		if err := b.ending(asServer(t), r); err != nil {
			t.Fatal(err)
		}
	}
	b.stop()
	if err := b.fake.Remove(asServer(t), removed.ID); err != nil {
		t.Fatal(err)
	}
	b.start(t)
	if end := b.await(t, x.ID).End; end.Outcome != runtime.OutcomeRunnerGone || end.GoneReason != runtime.GoneReleased {
		t.Errorf("%+v", end)
	}
	if end := b.await(t, y.ID).End; end.Outcome != runtime.OutcomeExited || end.ExitCode != 7 {
		t.Errorf("%+v", end)
	}
}

// TestEvidenceIsComparedWithTheStart checks that only what the host counted since the start is
// attributed to an execution, also after a restart.
func TestEvidenceIsComparedWithTheStart(t *testing.T) {
	for _, test := range []struct {
		before, after int64
		neighbour     bool
		want          runtime.Outcome
	}{
		{5, 6, false, runtime.OutcomeMemoryLimit},
		{5, 5, false, runtime.OutcomeExited},
		{5, 6, true, runtime.OutcomeExited},
	} {
		b := newBed(t)
		b.environment(t, "a", 1)
		r := b.claim(t, "a")
		b.fake.Count(r.ID, runtime.Evidence{OOMKills: test.before})
		x := b.startCommand(t, request.Start{RunnerID: r.ID, Command: []string{"count", "2", "0", "1"}, Stdin: true})
		if test.neighbour {
			b.run(t, r.ID, "true")
		}
		b.stop()
		b.fake.Count(r.ID, runtime.Evidence{OOMKills: test.after})
		b.start(t)
		b.endStdin(t, x.ID)
		if end := b.await(t, x.ID).End; end.Outcome != test.want {
			t.Errorf("%+v: %+v", test, end)
		}
	}
}

func TestStdinContinuesAfterARestart(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	x := b.startCommand(t, request.Start{RunnerID: r.ID, Command: []string{"cat"}, Stdin: true})
	write := func(text string, offset *int64, end bool) (int64, error) {
		return b.Executions.WriteStdin(asServer(t), request.Stdin{ExecutionID: x.ID, Data: []byte(text), Offset: offset, Close: end})
	}
	if n, err := write("one ", nil, false); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	b.stop()
	b.start(t)
	if n, err := write("one two ", ptr[int64](0), false); n != 8 || err != nil { // a retry, and more
		t.Error(n, err)
	}
	b.stop()
	b.start(t)
	_, err := write("x", ptr[int64](9), false)
	refusal.Want(t, err, runtime.CodeInvalidInput, "offset")
	if n, err := write("three", nil, false); n != 13 || err != nil {
		t.Error(n, err)
	}
	// Killed between the record of the end and the end itself.
	if err := b.store.NoteInputEnd(asServer(t), x.ID, 13); err != nil {
		t.Fatal(err)
	}
	b.stop()
	b.start(t)
	if end := b.await(t, x.ID); end.End.Outcome != runtime.OutcomeExited {
		t.Errorf("%+v", end.End)
	}
	if output, _ := b.events(t, x.ID, ""); output != "one two three" {
		t.Errorf("got %q, want \"one two three\"", output)
	}
}

func TestClosedStdinStaysClosedAfterARestart(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	x := b.startCommand(t, request.Start{RunnerID: r.ID, Command: []string{"sleep", "60"}, Stdin: true})
	if _, err := b.Executions.WriteStdin(asServer(t), request.Stdin{ExecutionID: x.ID, Data: []byte("all"), Close: true}); err != nil {
		t.Fatal(err)
	}
	b.stop()
	b.start(t)
	_, err := b.Executions.WriteStdin(asServer(t), request.Stdin{ExecutionID: x.ID, Data: []byte("more")})
	refusal.Want(t, err, runtime.CodeConflict, "")
}

// TestFedStdinStaysClosedAfterARestart restarts a server after the store has dropped a run's stdin.
func TestFedStdinStaysClosedAfterARestart(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	x, err := b.Executions.Run(asServer(t), request.Run{EnvironmentID: "a", Command: []string{"sleep", "3600"}, Stdin: ptr("a secret"), WaitFor: ptr(patient)})
	if err != nil {
		t.Fatal(err)
	}
	settled := func(when string) {
		t.Helper()
		wait.For(t, when+" the store has only where stdin ends", func() bool {
			left, err := b.store.Unfinished(asServer(t))
			return err == nil && len(left) == 1 && left[0].InputEnd != nil && *left[0].InputEnd == 8 && !strings.Contains(string(left[0].Start), "secret")
		})
	}
	settled("before the restart")
	for range 2 {
		b.stop()
		b.start(t)
		_, err = b.Executions.WriteStdin(asServer(t), request.Stdin{ExecutionID: x.ID, Data: []byte("more")})
		refusal.Want(t, err, runtime.CodeConflict, "")
	}
	settled("after restarts")
	if _, err := b.Executions.Cancel(asServer(t), x.ID); err != nil {
		t.Fatal(err)
	}
	if end := b.await(t, x.ID).End; end.Outcome != runtime.OutcomeCancelled {
		t.Errorf("%+v", end)
	}
}

// TestRunContinuesAfterARestart checks that a run is fed, ends, and releases its runner.
func TestRunContinuesAfterARestart(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	text := strings.Repeat("0123456789abcdef", 64<<10) // more than one message to the agent holds
	in := request.Run{EnvironmentID: "a", Command: []string{"cat"}, Stdin: &text, WaitFor: ptr(patient), Key: "k"}
	x, err := b.Executions.Run(asServer(t), in)
	if err != nil {
		t.Fatal(err)
	}
	b.stop()
	b.start(t)
	if again, err := b.Executions.Run(asServer(t), in); err != nil || again.ID != x.ID {
		t.Errorf("%s, %v", again.ID, err)
	}
	if end := b.await(t, x.ID); end.End.Outcome != runtime.OutcomeExited {
		t.Errorf("%+v", end.End)
	}
	if output, _ := b.events(t, x.ID, ""); output != text {
		t.Errorf("%d bytes", len(output))
	}
	wait.For(t, "its runner is removed", func() bool { _, there := b.runnerIndex.get(x.RunnerID); return !there })
}

// TestRunnerOfAnEndedRunIsReleasedAfterARestart kills the server between storing the end and the release.
func TestRunnerOfAnEndedRunIsReleasedAfterARestart(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	x, err := b.Executions.Run(asServer(t), request.Run{EnvironmentID: "a", Command: []string{"sleep", "60"}, WaitFor: ptr(patient)})
	if err != nil {
		t.Fatal(err)
	}
	b.stop()
	s, err := store.Open(asServer(t), filepath.Join(b.dir, "db"))
	if err != nil {
		t.Fatal(err)
	}
	ended := session.Finished(x, runtime.End{Outcome: runtime.OutcomeExited}, runtime.Usage{}, time.Now())
	if _, err := s.FinishExecution(asServer(t), ended, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b.start(t)
	wait.For(t, "its runner is removed", func() bool { _, there := b.runnerIndex.get(x.RunnerID); return !there })
}

// TestUseKeepsTheClaim checks that a used runner doesn't expire, even across restarts, and that it
// expires afterwards.
func TestUseKeepsTheClaim(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	var r runtime.Runner
	var x runtime.Execution
	wait.For(t, "something runs before the claim expires", func() (ok bool) {
		r = b.claimFor(t, "a", 1)
		var err error
		x, err = b.Executions.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"cat"}, Stdin: true})
		return err == nil
	})
	for range 3 {
		b.expired(t, "a", 1)
		b.stop()
		stored, err := b.fake.Runners(asServer(t), "a")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range stored {
			if s.ID == r.ID && !s.Claim.ExpiresAt.After(r.Claim.ExpiresAt) {
				t.Errorf("its stored claim expires at %s, as it did at first", s.Claim.ExpiresAt)
			}
		}
		b.start(t)
	}
	if _, err := b.Executions.WriteStdin(asServer(t), request.Stdin{ExecutionID: x.ID, Close: true}); err != nil {
		t.Fatal(err)
	}
	if end := b.await(t, x.ID).End; end.Outcome != runtime.OutcomeExited {
		t.Errorf("%+v", end)
	}
	wait.For(t, "its claim expires", func() bool { _, there := b.runnerIndex.get(r.ID); return !there })
}

// TestRestoreWaitsForNoAgent also checks that known state is returned immediately.
func TestRestoreWaitsForNoAgent(t *testing.T) {
	b, c, r := hostile(t, nil)
	c.agent.Store(nil)
	x := b.startCommand(t, request.Start{RunnerID: r.ID, Command: []string{"count", "2", "0", "1"}, Stdin: true})
	output, all := "", []events.Event(nil)
	wait.For(t, "it prints", func() bool {
		chunks, _, _, err := b.output(x.ID, "", 1<<20)
		all = chunks
		return err == nil && len(chunks) > 0
	})
	b.stop()
	var givenUp atomic.Int32
	silent := func(conn net.Conn) {
		_, _ = io.Copy(io.Discard, conn) // and never an answer
		givenUp.Add(1)
		_ = conn.Close()
	}
	c.agent.Store(&silent)
	b.start(t)
	if n := givenUp.Load(); n > 0 {
		t.Errorf("the restart waited until %d agents were given up", n)
	}
	got, err := b.Executions.Get(asServer(t), x.ID, 0)
	if err != nil || got.State != runtime.ExecutionRunning {
		t.Errorf("%s, %v", got.State, err)
	}
	chunks, _, end, err := b.output(x.ID, "", 1<<20)
	for _, c := range chunks {
		output += string(c.Data)
	}
	if err != nil || end || !strings.HasPrefix(output, string(all[0].Data)) {
		t.Errorf("%q, %v, %v", output, end, err)
	}
}

// TestUnreadableRecordsAreSkippedAtRestore checks that the restore continues, and that Health
// reports them.
func TestUnreadableRecordsAreSkippedAtRestore(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	half := request.Start{RunnerID: r.ID, Command: []string{"count", "40", "0", "20"}, Stdin: true}
	x, y := b.startCommand(t, half), b.startCommand(t, half)
	b.acknowledged(t, r.ID, x.ID, 50) // 20 lines
	_, cursor, _, err := b.output(x.ID, "", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	log := b.logs.Path(x.ID)
	b.stop()
	db := b.database(t)
	if _, err := db.Exec(`UPDATE executions SET value = x'7b' WHERE id = ?`, y.ID); err != nil {
		t.Fatal(err)
	}
	// Nobody can read a directory as a log.
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(log, 0o700); err != nil {
		t.Fatal(err)
	}
	b.start(t)
	restore := func() activity.ComponentHealth {
		for _, c := range b.Health(asServer(t)).Components {
			if c.Name == "restore" {
				return c
			}
		}
		return activity.ComponentHealth{}
	}
	if c := restore(); c.Status != activity.HealthDegraded || !strings.HasPrefix(c.Message, "2 ") || !strings.Contains(c.Message, string(x.ID)) {
		t.Errorf("got %+v, want DEGRADED with 2 records, the first of %s", c, x.ID)
	}
	b.endStdin(t, x.ID)
	if end := b.await(t, x.ID).End; end.Outcome != runtime.OutcomeExited {
		t.Errorf("%+v", end)
	}
	output, all := b.events(t, x.ID, cursor)
	if all[len(all)-1].Kind != events.Finished || !strings.HasSuffix(output, "\n39\n") {
		t.Errorf("%q, %+v", output, all)
	}
	output, all = b.events(t, x.ID, "")
	if want := (&follower{lines: 40}).want(); all[1].Kind != events.Lost || int(all[1].Bytes)+len(output) != len(want) || !strings.HasSuffix(want, output) {
		t.Errorf("%q, %+v", output, all)
	}
	if page, err := b.Executions.List(asServer(t), request.Executions{}, 10, ""); err != nil || len(page.Executions) != 1 {
		t.Errorf("%d executions, %v", len(page.Executions), err)
	}
}

// TestReaderReportsATruncatedLog truncates a log, as a power cut does, before the position of a reader.
func TestReaderReportsATruncatedLog(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	x := b.startCommand(t, request.Start{RunnerID: r.ID, Command: []string{"count", "100000", "1000"}})
	var cursor string
	wait.For(t, "it prints", func() bool {
		chunks, next, _, err := b.output(x.ID, "", 1<<20)
		cursor = next
		return err == nil && len(chunks) > 0
	})
	log := b.logs.Path(x.ID)
	b.stop()
	if err := b.fake.Remove(asServer(t), r.ID); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(log, 10); err != nil {
		t.Fatal(err)
	}
	b.start(t)
	if output, all := b.events(t, x.ID, cursor); output != "" || len(all) != 1 || all[0].Execution.End.Outcome != runtime.OutcomeLost {
		t.Errorf("%q, %+v", output, all)
	}
	if output, all := b.events(t, x.ID, ""); output != "" || all[len(all)-1].Kind != events.Finished {
		t.Errorf("%q, %+v", output, all)
	}
}
