package clustertest

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

// A Dial opens a stream to one runner's agent, or to another server of its protocol.
type Dial func(ctx context.Context) (net.Conn, error)

// Executions runs the part of the suite about commands in a runner. It needs no cluster: any server
// of the agent's protocol must pass it.
func Executions(t *testing.T, dial Dial) {
	tests := map[string]func(t *testing.T, dial Dial){
		"a command prints, and exits with its code":   testExit,
		"a missing command is refused":                testNoCommand,
		"stdin arrives completely, and ends":          testStdin,
		"a start is idempotent by its id":             testSameID,
		"attach continues an execution":               testAttach,
		"a kill ends an execution":                    testKill,
		"a time limit ends an execution":              testTimeLimit,
		"a running command is measured":               testUsage,
		"output is complete, however late it is read": testOutput,
		"a terminal's sizes are part of its output":   testSizes,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, dial) })
	}
}

// open starts a command.
func (dial Dial) open(t *testing.T, start agent.Start) (*agent.Session, error) {
	t.Helper()
	conn, err := dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if start.ID == "" {
		start.ID = string(runtime.NewExecutionID())
	}
	start.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin"}
	return agent.StartExecution(t.Context(), conn, start)
}

// start is like open, but fails the test if the command is refused. The cleanup closes the session.
func (dial Dial) start(t *testing.T, start agent.Start) *agent.Session {
	t.Helper()
	session, err := dial.open(t, start)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	return session
}

// begun waits until the command runs, and returns the session.
func begun(t *testing.T, session *agent.Session) *agent.Session {
	t.Helper()
	if event, err := session.Next(); err != nil || event.Kind != agent.KindStarted {
		t.Fatal(event, err)
	}
	return session
}

// drain reads up to the exit, and settles the execution.
func drain(t *testing.T, session *agent.Session) (string, agent.Exit) {
	t.Helper()
	var printed []byte
	for {
		event, err := session.Next()
		if err != nil {
			t.Fatal(err)
		}
		switch event.Kind {
		case agent.KindOutput:
			printed = append(printed, event.Data...)
			if err := session.Ack(event.Offset + int64(len(event.Data))); err != nil {
				t.Fatal(err)
			}
		case agent.KindExited:
			if err := session.Settled(); err != nil {
				t.Fatal(err)
			}
			return string(printed), event.Exit
		}
	}
}

func testExit(t *testing.T, dial Dial) {
	for _, test := range []struct {
		argv    []string
		printed string
		code    int
	}{
		{[]string{"echo", "Hello", "World"}, "Hello World\n", 0},
		{[]string{"true"}, "", 0},
		{[]string{"false"}, "", 1},
		{[]string{"sh", "-c", "exit 42"}, "", 42},
	} {
		printed, exit := drain(t, dial.start(t, agent.Start{Argv: test.argv}))
		if printed != test.printed || exit.Code != test.code || exit.Signal != "" || exit.Cause != agent.CauseSelf {
			t.Errorf("%q printed %q and ended with %+v", test.argv, printed, exit)
		}
	}
}

func testNoCommand(t *testing.T, dial Dial) {
	var refused *agent.Error
	if _, err := dial.open(t, agent.Start{Argv: []string{"no-such-command"}}); !errors.As(err, &refused) || refused.Code != agent.ErrNotFound {
		t.Errorf("%v, want %s", err, agent.ErrNotFound)
	}
}

// feed writes text to stdin from an offset on, and closes it.
func feed(t *testing.T, session *agent.Session, offset int64, text string) {
	if _, err := session.WriteStdin(t.Context(), offset, []byte(text)); err != nil {
		t.Error(err)
	}
	if err := session.CloseStdin(); err != nil {
		t.Error(err)
	}
}

func testStdin(t *testing.T, dial Dial) {
	for _, text := range []string{"", "still here", strings.Repeat("0123456789abcd\x00\n", 1<<16)} {
		session := begun(t, dial.start(t, agent.Start{Argv: []string{"cat"}, Stdin: true}))
		go feed(t, session, 0, text)
		if printed, exit := drain(t, session); printed != text || exit.Code != 0 {
			t.Errorf("%d bytes of %d came, and it ended with %+v", len(printed), len(text), exit)
		}
	}
}

func testSameID(t *testing.T, dial Dial) {
	start := agent.Start{ID: string(runtime.NewExecutionID()), Argv: []string{"cat"}, Stdin: true}
	first := begun(t, dial.start(t, start))
	second := begun(t, dial.start(t, start))
	if _, err := first.Next(); err == nil {
		t.Error("the first stream continues")
	}
	go feed(t, second, 0, "once")
	if printed, exit := drain(t, second); printed != "once" || exit.Code != 0 {
		t.Errorf("printed %q and ended with %+v", printed, exit)
	}
}

func testAttach(t *testing.T, dial Dial) {
	id := string(runtime.NewExecutionID())
	first := begun(t, dial.start(t, agent.Start{ID: id, Argv: []string{"cat"}, Stdin: true}))
	go first.WriteStdin(t.Context(), 0, []byte("hello ")) // the stream is closed below
	event, err := first.Next()
	if err != nil || string(event.Data) != "hello " {
		t.Fatalf("%q, %v", event.Data, err)
	}
	first.Close()
	conn, err := dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second, err := agent.AttachExecution(t.Context(), conn, agent.Attach{ID: id, Offset: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	go feed(t, second, 6, "again")
	if printed, exit := drain(t, second); printed != "lo again" || exit.Code != 0 {
		t.Errorf("after the attach: %q, %+v", printed, exit)
	}
}

func testKill(t *testing.T, dial Dial) {
	session := begun(t, dial.start(t, agent.Start{Argv: []string{"sleep", "1000"}}))
	if err := session.Kill(0); err != nil {
		t.Fatal(err)
	}
	if _, exit := drain(t, session); exit.Cause != agent.CauseKill || exit.Signal != "SIGKILL" {
		t.Errorf("it ended with %+v", exit)
	}
}

func testTimeLimit(t *testing.T, dial Dial) {
	session := dial.start(t, agent.Start{Argv: []string{"sleep", "1000"}, TimeLimit: 300 * time.Millisecond})
	if _, exit := drain(t, session); exit.Cause != agent.CauseTimeLimit || exit.Signal != "SIGKILL" || exit.Wall < 300*time.Millisecond {
		t.Errorf("it ended with %+v", exit)
	}
}

// testUsage measures a waiting command, until it has ended.
func testUsage(t *testing.T, dial Dial) {
	id := string(runtime.NewExecutionID())
	session := begun(t, dial.start(t, agent.Start{ID: id, Argv: []string{"cat"}, Stdin: true}))
	usage := func() (agent.Used, agent.ExecutionUsed, bool) {
		conn, err := dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		usage, err := agent.ReadUsage(t.Context(), conn)
		if err != nil {
			t.Fatal(err)
		}
		x, runs := usage.Executions[id]
		return usage.Runner, x, runs
	}
	wait.For(t, "the command is measured", func() bool { // this small command may never fill a unit of the kernel's memory counter
		runner, x, ok := usage()
		if !ok {
			t.Fatal("it isn't measured while it runs")
		}
		return x.Wall > 0 && x.Processes > 0 && runner.Memory > 0 && runner.Processes > 0 && runner.User+runner.System > 0
	})
	go feed(t, session, 0, "")
	drain(t, session)
	wait.For(t, "the command is no longer measured", func() bool { _, _, ok := usage(); return !ok })
}

// testOutput reads a command's output by several streams. Each continues where the one before it
// was closed, and so does the command's input.
func testOutput(t *testing.T, dial Dial) {
	var text strings.Builder
	for i := 0; text.Len() < 3<<20; i++ {
		text.WriteString(strings.Repeat(string(rune('a'+i%26)), 99) + "\n")
	}
	want := text.String()
	id := string(runtime.NewExecutionID())
	session := dial.start(t, agent.Start{ID: id, Argv: []string{"cat"}, Stdin: true})
	var feeding sync.WaitGroup
	defer feeding.Wait()
	printed := make([]byte, 0, len(want))
	for cuts := 0; ; {
		event, err := session.Next()
		if err != nil {
			t.Fatal(err)
		}
		switch event.Kind {
		case agent.KindStarted:
			feeding.Go(func() {
				// The agent skips input that it has already; closing the stream ends the write.
				if _, err := session.WriteStdin(t.Context(), 0, []byte(want)); err == nil {
					_ = session.CloseStdin()
				}
			})
		case agent.KindOutput:
			printed = append(printed, event.Data...)
			_ = session.Ack(int64(len(printed)))
		case agent.KindExited:
			if string(printed) != want || event.Exit.Code != 0 {
				t.Errorf("%d bytes of %d came, %+v", len(printed), len(want), event.Exit)
			}
			if err := session.Settled(); err != nil {
				t.Error(err)
			}
			return
		}
		if len(printed) < (cuts+1)<<19 {
			continue
		}
		cuts++
		session.Close()
		feeding.Wait()
		conn, err := dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if session, err = agent.AttachExecution(t.Context(), conn, agent.Attach{ID: id, Offset: int64(len(printed))}); err != nil {
			t.Fatal(err)
		}
		defer session.Close()
	}
}
