package engine

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/files"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/runtime/session"
	"github.com/rockpool/rockpool/test/refusal"
	"github.com/rockpool/rockpool/test/wait"
)

func TestClaimRunAndRelease(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	if _, err := b.Files.Update(asServer(t), r.ID, "write", files.Update{Write: []runtime.FileWrite{{Path: "x", Data: []byte("data")}}}); err != nil {
		t.Fatal(err)
	}
	if f, found, err := b.Files.Get(asServer(t), r.ID, "x", false); err != nil || !found || f.Size != 4 {
		t.Errorf("%+v, %v, %v", f, found, err)
	}
	if _, found, err := b.Files.Get(asServer(t), r.ID, "none", false); err != nil || found {
		t.Error(found, err)
	}
	x := b.run(t, r.ID, "echo", "Hello", "World")
	if x.End.Outcome != runtime.OutcomeExited || x.Usage.OutputBytes != 12 {
		t.Errorf("%+v", x)
	}
	output, all := b.events(t, x.ID, "")
	var kinds []events.Kind
	for _, e := range all {
		kinds = append(kinds, e.Kind)
	}
	if diff := cmp.Diff([]events.Kind{events.Started, events.Output, events.Finished}, kinds); diff != "" || output != "Hello World\n" {
		t.Error(output, diff)
	}
	if released, err := b.Runners.Release(asServer(t), r.ID); err != nil || !released {
		t.Error(released, err)
	}
	if _, there := b.runnerIndex.get(r.ID); there {
		t.Error("the released runner still exists")
	}
	_, err := b.Executions.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"true"}})
	refusal.Want(t, err, runtime.CodeRunnerGone, "")
}

func TestOutcomes(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	if x := b.run(t, r.ID, "exit", "42"); x.End.Outcome != runtime.OutcomeExited || x.End.ExitCode != 42 {
		t.Errorf("%+v", x.End)
	}
	if x := b.run(t, r.ID, "nonesuch"); x.End.Outcome != runtime.OutcomeFailed || x.End.ExitCode != 127 || !strings.Contains(x.End.Message, "nonesuch") {
		t.Errorf("got %+v, want FAILED with 127 that names the command", x.End)
	}
	limited, err := b.Executions.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"zeros", "5000"}, OutputLimit: ptr[int64](1024)})
	if err != nil {
		t.Fatal(err)
	}
	if x := b.await(t, limited.ID); x.End.Outcome != runtime.OutcomeOutputLimit || x.Usage.OutputBytes != 1024 {
		t.Errorf("%+v", x)
	}
	slow, err := b.Executions.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"sleep", "30"}, TimeLimit: ptr(1)})
	if err != nil {
		t.Fatal(err)
	}
	// The agent keeps it; the engine would, so much later.
	if x := b.await(t, slow.ID); x.End.Outcome != runtime.OutcomeTimeLimit || x.Usage.Wall < time.Second || x.Usage.Wall >= time.Second+session.AgentLate {
		t.Errorf("%+v", x)
	}
	cancelled, err := b.Executions.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"sleep", "30"}})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if x, err := b.Executions.Cancel(asServer(t), cancelled.ID); err != nil || x.End.Outcome != runtime.OutcomeCancelled && time.Since(began) < 2*time.Second {
		t.Errorf("%+v, %v", x, err)
	}
	b.await(t, cancelled.ID)
	if x, err := b.Executions.Cancel(asServer(t), cancelled.ID); err != nil || x.End.Outcome != runtime.OutcomeCancelled {
		t.Errorf("a second cancel: %+v, %v", x, err)
	}
	hog, err := b.Executions.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"cat"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	wait.For(t, "runs", func() bool {
		x, _ := b.Executions.Get(asServer(t), hog.ID, 0)
		return x.State == runtime.ExecutionRunning
	})
	b.fake.Count(r.ID, runtime.Evidence{ProcessLimitHits: agent.MostRefused + 1})
	if x := b.await(t, hog.ID); x.End.Outcome != runtime.OutcomeProcessLimit {
		t.Errorf("%+v", x.End)
	}
	if x := b.run(t, r.ID, "true"); x.End.Outcome != runtime.OutcomeExited {
		t.Errorf("the runner isn't usable afterwards: %+v", x.End)
	}
}

func TestGoneRunnerEndsItsExecutions(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 2)
	for name, end := range map[runtime.GoneReason]func(runtime.RunnerID){
		runtime.GoneAgentDied: func(id runtime.RunnerID) { b.fake.Kill(id, runtime.GoneAgentDied) },
		runtime.GoneReleased: func(id runtime.RunnerID) {
			if _, err := b.Runners.Release(asServer(t), id); err != nil {
				t.Error(err)
			}
		},
	} {
		r := b.claim(t, "a")
		x, err := b.Executions.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"sleep", "60"}})
		if err != nil {
			t.Fatal(err)
		}
		wait.For(t, "runs", func() bool {
			x, _ := b.Executions.Get(asServer(t), x.ID, 0)
			return x.State == runtime.ExecutionRunning
		})
		end(r.ID)
		if x := b.await(t, x.ID); x.End.Outcome != runtime.OutcomeRunnerGone || x.End.GoneReason != name {
			t.Errorf("%s: %+v", name, x.End)
		}
	}
}

func TestStdin(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	x, err := b.Executions.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"cat"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	write := func(data string, offset *int64, end bool) (int64, error) {
		return b.Executions.WriteStdin(asServer(t), request.Stdin{ExecutionID: x.ID, Data: []byte(data), Offset: offset, Close: end})
	}
	for _, step := range []struct {
		data   string
		offset *int64
		want   int64
	}{{"hello ", nil, 6}, {"hello ", ptr[int64](0), 6}, {"lo wo", ptr[int64](3), 8}, {"rld", nil, 11}} {
		if got, err := write(step.data, step.offset, false); err != nil || got != step.want {
			t.Errorf("write %q: %d, %v, want %d", step.data, got, err, step.want)
		}
	}
	_, err = write("x", ptr[int64](100), false)
	refusal.Want(t, err, runtime.CodeInvalidInput, "offset")
	if typed, ok := errors.AsType[*runtime.Error](err); !ok || typed.Offset == nil || *typed.Offset != 11 {
		t.Errorf("%v, want its offset to be 11", err)
	}
	if _, err := write("", nil, true); err != nil {
		t.Error(err)
	}
	if got := b.await(t, x.ID); got.End.Outcome != runtime.OutcomeExited {
		t.Errorf("%+v", got.End)
	}
	if output, _ := b.events(t, x.ID, ""); output != "hello world" {
		t.Errorf("got %q, want \"hello world\"", output)
	}
	_, err = write("x", nil, false)
	refusal.Want(t, err, runtime.CodeConflict, "")
	closed, err := b.Executions.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"sleep", "3600"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Executions.WriteStdin(asServer(t), request.Stdin{ExecutionID: closed.ID, Data: []byte("x")})
	refusal.Want(t, err, runtime.CodeInvalidInput, "executionId")
	_, err = b.Executions.WriteStdin(asServer(t), request.Stdin{ExecutionID: "nonesuch"})
	refusal.Want(t, err, runtime.CodeExecutionNotFound, "")
}

func TestKeys(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 2)
	b.environment(t, "b", 1)
	in := request.Claim{EnvironmentID: "a", Key: "k", WaitFor: ptr(patient)}
	var group sync.WaitGroup
	ids := make([]runtime.RunnerID, 20)
	for i := range ids {
		group.Go(func() {
			r, err := b.Runners.Claim(asServer(t), in)
			if err != nil {
				t.Error(err)
			}
			ids[i] = r.ID
		})
	}
	group.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("one key, two runners: %s and %s", id, ids[0])
		}
	}
	other := in
	other.EnvironmentID = "b"
	_, err := b.Runners.Claim(asServer(t), other)
	refusal.Want(t, err, runtime.CodeConflict, "")

	start := request.Start{RunnerID: ids[0], Command: []string{"echo", "once"}, Key: "k"}
	first, err := b.Executions.Start(asServer(t), start)
	if err != nil {
		t.Fatal(err)
	}
	b.await(t, first.ID)
	again, err := b.Executions.Start(asServer(t), start)
	if err != nil || again.ID != first.ID || again.State != runtime.ExecutionFinished {
		t.Errorf("%+v, %v", again, err)
	}
	start.Command = []string{"echo", "twice"}
	_, err = b.Executions.Start(asServer(t), start)
	refusal.Want(t, err, runtime.CodeConflict, "")

	if _, err := b.Runners.Release(asServer(t), ids[0]); err != nil {
		t.Fatal(err)
	}
	_, err = b.Runners.Claim(asServer(t), in)
	refusal.Want(t, err, runtime.CodeRunnerGone, "")
	_, err = b.Runners.Claim(asServer(t), other)
	refusal.Want(t, err, runtime.CodeConflict, "")
	b.stop()
	b.start(t)
	_, err = b.Runners.Claim(asServer(t), in)
	refusal.Want(t, err, runtime.CodeRunnerGone, "") // a restart doesn't forget
}

func TestExecute(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	in := request.Run{EnvironmentID: "a", Files: []runtime.FileWrite{{Path: "f", Data: []byte("x")}},
		Command: []string{"cat"}, Stdin: ptr("fed"), WaitFor: ptr(patient), Key: "k"}
	x, err := b.Executions.Run(asServer(t), in)
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.Executions.Run(asServer(t), in)
	if err != nil || again.ID != x.ID {
		t.Errorf("the same key ran again: %+v, %v", again, err)
	}
	if got := b.await(t, x.ID); got.End.Outcome != runtime.OutcomeExited {
		t.Errorf("%+v", got.End)
	}
	if output, _ := b.events(t, x.ID, ""); output != "fed" {
		t.Errorf("got %q, want \"fed\"", output)
	}
	wait.For(t, "the runner is released", func() bool { _, there := b.runnerIndex.get(x.RunnerID); return !there })
	if again, err = b.Executions.Run(asServer(t), in); err != nil || again.ID != x.ID {
		t.Errorf("the same key, after the runner was removed: %+v, %v", again, err)
	}
	in.Stdin = nil
	_, err = b.Executions.Run(asServer(t), in)
	refusal.Want(t, err, runtime.CodeConflict, "")
	if again, err = b.Executions.Run(asServer(t), request.Run{EnvironmentID: "a", Command: []string{"true"}, WaitFor: ptr(patient)}); err != nil {
		t.Fatal(err)
	}
	b.await(t, again.ID)
}

func TestLateAndResumedSubscribersGetAllEvents(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	const size = 3 << 20
	x, err := b.Executions.Start(asServer(t), request.Start{RunnerID: r.ID, Command: []string{"zeros", strconv.Itoa(size)}})
	if err != nil {
		t.Fatal(err)
	}
	whole, all := b.events(t, x.ID, "") // from its start, while it runs
	late, _ := b.events(t, x.ID, "")    // after its end
	if len(whole) != size || late != whole {
		t.Errorf("%d and %d bytes, want %d", len(whole), len(late), size)
	}
	var last events.Event
	for i, cut := range all {
		if i%7 != 0 && i != len(all)-1 {
			continue
		}
		rest, tail := b.events(t, x.ID, cut.Cursor)
		got := 0
		for _, e := range all[:i+1] {
			got += len(e.Data)
		}
		if got+len(rest) != size {
			t.Errorf("cut after event %d: %d + %d bytes, want %d", i, got, len(rest), size)
		}
		last = tail[len(tail)-1]
		if diff := cmp.Diff(all[len(all)-1], last); diff != "" {
			t.Errorf("another end: %s", diff)
		}
	}
	other := b.run(t, r.ID, "echo", "x")
	for _, after := range []string{"!", "AAAA", last.Cursor + "x", last.Cursor} {
		if _, err := b.Executions.Events(asServer(t), other.ID, after); err == nil {
			t.Errorf("cursor %q was taken", after)
		} else {
			refusal.Want(t, err, runtime.CodeInvalidInput, "after")
		}
	}
	pages, after := 0, ""
	for got := 0; ; pages++ {
		chunks, next, end, err := b.output(x.ID, after, 256<<10)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range chunks {
			got += len(c.Data)
		}
		after = next
		if end {
			if got != size {
				t.Errorf("pages had %d bytes, want %d", got, size)
			}
			break
		}
	}
	if pages < 10 {
		t.Errorf("%d pages of 256 KiB", pages)
	}
	page, err := b.Executions.Output(asServer(t), x.ID, "", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	one, err := page.Next()
	if err != nil || page.End() || page.Cursor() != one.Cursor {
		t.Errorf("a page of which one event was taken: cursor %s, want %s; end %t, %v", page.Cursor(), one.Cursor, page.End(), err)
	}
	two, err := page.Next()
	rest, _, _, err2 := b.output(x.ID, one.Cursor, 1<<20)
	if err != nil || err2 != nil || len(rest) == 0 || rest[0].Cursor != two.Cursor {
		t.Errorf("the page after it begins elsewhere: %v, %v", err, err2)
	}
}

func TestPoolsAreWatched(t *testing.T) {
	b := newBed(t)
	ctx, cancel := context.WithCancel(asServer(t))
	all, err := b.Environments.WatchPools(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Environments.WatchPools(ctx, "none")
	refusal.Want(t, err, runtime.CodeEnvironmentNotFound, "")
	b.environment(t, "a", 2)
	for s := range all {
		if s.EnvironmentID == "a" && s.Idle == 2 {
			break
		}
	}
	if _, err := b.Environments.Delete(asServer(t), "a", false); err != nil {
		t.Fatal(err)
	}
	for s := range all {
		if s.Deleted {
			break
		}
	}
	cancel()
	for range all { // closed
	}
}

func TestInvalidInputIsRefused(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	r := b.claim(t, "a")
	long := strings.Repeat("x", 200<<10)
	for name, test := range map[string]struct {
		field string
		in    request.Start
	}{
		"neither":       {"command", request.Start{}},
		"both":          {"command", request.Start{Command: []string{"true"}, Shell: ptr("true")}},
		"empty command": {"command", request.Start{Command: []string{}}},
		"no program":    {"command.0", request.Start{Command: []string{""}}},
		"empty shell":   {"shell", request.Start{Shell: ptr("")}},
		"NUL":           {"command.1", request.Start{Command: []string{"echo", "a\x00b"}}},
		"long":          {"shell", request.Start{Shell: &long}},
		"time":          {"timeLimit", request.Start{Command: []string{"true"}, TimeLimit: ptr(-1)}},
		"much time":     {"timeLimit", request.Start{Command: []string{"true"}, TimeLimit: ptr(1 << 62)}},
		"output":        {"limits.outputBytes", request.Start{Command: []string{"true"}, OutputLimit: ptr(int64(0))}},
		"variable":      {"variables.0.name", request.Start{Command: []string{"true"}, Variables: []runtime.Variable{{Name: ""}}}},
		"directory":     {"workingDirectory", request.Start{Command: []string{"true"}, WorkingDirectory: "\x00"}},
		"line":          {"commandLine", request.Start{Command: []string{"true"}, CommandLine: "\x1b"}},
		"key":           {"idempotencyKey", request.Start{Command: []string{"true"}, Key: long}},
	} {
		t.Run(name, func(t *testing.T) {
			test.in.RunnerID = r.ID
			_, err := b.Executions.Start(asServer(t), test.in)
			refusal.Want(t, err, runtime.CodeInvalidInput, test.field)
			_, err = b.Executions.Run(asServer(t), request.Run{EnvironmentID: "a", Command: test.in.Command, CommandLine: test.in.CommandLine, Shell: test.in.Shell,
				Variables: test.in.Variables, WorkingDirectory: test.in.WorkingDirectory, TimeLimit: test.in.TimeLimit, Key: test.in.Key})
			if test.in.OutputLimit == nil {
				refusal.Want(t, err, runtime.CodeInvalidInput, test.field)
			}
		})
	}
	if page, err := b.Executions.List(asServer(t), request.Executions{RunnerID: r.ID}, 10, ""); err != nil || page.Total != 0 {
		t.Errorf("refused starts left %d executions, %v", page.Total, err)
	}
	_, err := b.Runners.Claim(asServer(t), request.Claim{EnvironmentID: "none"})
	refusal.Want(t, err, runtime.CodeEnvironmentNotFound, "")
	_, err = b.Runners.Claim(asServer(t), request.Claim{EnvironmentID: "a", InactivityTimeout: ptr(-1)})
	refusal.Want(t, err, runtime.CodeInvalidInput, "inactivityTimeout")
	_, err = b.Runners.Claim(asServer(t), request.Claim{EnvironmentID: "a", WaitFor: ptr(1 << 40)})
	refusal.Want(t, err, runtime.CodeInvalidInput, "waitFor")
	_, err = b.Files.Update(asServer(t), r.ID, "write", files.Update{Delete: []string{"a", ""}})
	refusal.Want(t, err, runtime.CodeInvalidInput, "delete.1")
	_, err = b.Files.Update(asServer(t), r.ID, "write", files.Update{Write: []runtime.FileWrite{{Path: "x\x00"}}})
	refusal.Want(t, err, runtime.CodeInvalidInput, "write.0.path")
	_, err = b.Files.Move(asServer(t), r.ID, ".", "x", false)
	refusal.Want(t, err, runtime.CodeInvalidInput, "from")
	_, err = b.Files.Move(asServer(t), r.ID, "x", "/workspace/", false)
	refusal.Want(t, err, runtime.CodeInvalidInput, "to")
	_, err = b.Files.Move(asServer(t), r.ID, "none", "x", false)
	refusal.Want(t, err, runtime.CodeFileError, "")
	_, err = b.Executions.Run(asServer(t), request.Run{EnvironmentID: "a", Command: []string{"true"}, Files: []runtime.FileWrite{{Path: ""}}})
	refusal.Want(t, err, runtime.CodeInvalidInput, "files.0.path")
	_, _, _, err = b.output("none", "", 1)
	refusal.Want(t, err, runtime.CodeExecutionNotFound, "")
	_, err = b.Executions.Cancel(asServer(t), "none")
	refusal.Want(t, err, runtime.CodeExecutionNotFound, "")
	_, err = b.Runners.Renew(asServer(t), "none")
	refusal.Want(t, err, runtime.CodeRunnerGone, "")
	if released, err := b.Runners.Release(asServer(t), "none"); err != nil || released {
		t.Error(released, err)
	}
}

func TestHealth(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	wait.For(t, "OK", func() bool { return b.Health(asServer(t)).Status == activity.HealthOK })
	b.fake.OnStart(func(runtime.RunnerID) error { return runtime.Errorf(runtime.CodeInternal, "broken") })
	b.environment(t, "b", 1)
	wait.For(t, "degraded", func() bool {
		h := b.Health(asServer(t))
		for _, c := range h.Components {
			if c.Name == "pool b" && c.Status == activity.HealthDegraded && strings.Contains(c.Message, "broken") && !c.Since.IsZero() {
				return h.Status == activity.HealthDegraded
			}
		}
		return false
	})
}
