package plain_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/nomad/plain"
	"github.com/rockpool/rockpool/test/wait"
)

// TestBrokenExec loses the exec of a command that runs.
func TestBrokenExec(t *testing.T) {
	m := shells(t)["dash"]
	var mu sync.Mutex
	broke, stop := context.WithCancel(t.Context())
	m.during = func(kind string) context.Context {
		mu.Lock()
		defer mu.Unlock()
		if kind == "run" {
			return broke
		}
		return context.Background()
	}
	b := newBed(t, m)
	s := b.begin(agent.Start{ID: "x", Argv: []string{"sh", "-c", "echo $$ >group; echo seen; sleep 1000"}})
	pids := b.pids("group")
	ready(t, s, "seen\n")
	stop()
	if o := follow(s); o.err == nil {
		t.Fatalf("an exit: %+v", o.exit)
	}
	wait.For(t, "it is ended", func() bool { return !lives(pids[0]) })
	conn, err := b.runner.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agent.AttachExecution(t.Context(), conn, agent.Attach{ID: "x", Offset: 5}); refused(t, err).Code != agent.ErrNotFound {
		t.Errorf("%v", err)
	}
	mu.Lock()
	broke = context.Background() // the runner goes on
	mu.Unlock()
	if o := b.sh("echo again"); o.stdout != "again\n" || o.err != nil {
		t.Errorf("%+v", o)
	}
}

// TestFalseExit has an exec that ends with a made-up 0 before its command has
// begun, as Nomad's docker driver's does, and at its end.
func TestFalseExit(t *testing.T) {
	m := shells(t)["dash"]
	var execs atomic.Int64
	m.before = func(string, plain.Command) error {
		if execs.Add(1)%3 == 1 {
			return errFalseExit
		}
		return nil
	}
	b := newBed(t, m)
	for range 10 {
		if o := b.sh("echo out; exit 3"); o.stdout != "out\n" || o.exit.Code != 3 || o.err != nil {
			t.Fatalf("%+v", o)
		}
	}
	s := b.begin(agent.Start{Argv: []string{"sh", "-c", "echo $PPID; sleep 1000"}})
	ready(t, s, "\n")
	// The script around it dies: its exec ends, with whatever code.
	if err := s.Kill(0); err != nil {
		t.Fatal(err)
	}
	if o := follow(s); o.exit.Signal != "SIGKILL" {
		t.Errorf("%+v", o)
	}
	if content, err := b.update(agent.Update{Write: []agent.Write{{Path: "f", Size: 1}}}, "x"); err != nil || len(content.Written) != 1 {
		t.Errorf("%+v, %v", content, err)
	}
	if text, _, err := b.read("f", 0); err != nil || text != "x" {
		t.Errorf("%q, %v", text, err)
	}
	if all, err := b.list("", true); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestKilledWrapper has a command that kills the script around it: nobody saw
// how the command ended.
func TestKilledWrapper(t *testing.T) {
	onEach(t, func(t *testing.T, b *bed) {
		// The command's parent, or that one's, is the script, which lives until it has told
		// that the command began. The command may be ended as soon as that is dead, so it
		// says before who it is.
		s := b.begin(agent.Start{Argv: []string{"sh", "-c", `
			until [ -e go ]; do sleep 0.05; done
			read -r line </proc/$PPID/stat; set -- ${line##*") "}; echo $$ >group; kill -KILL $PPID $2; echo said; exec sleep 1000`}})
		if err := os.WriteFile(filepath.Join(b.runner.Workspace(), "go"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		pids := b.pids("group")
		// It holds its output open: until it ends, some execs don't.
		_ = s.Kill(0)
		if o := follow(s); o.err == nil {
			t.Errorf("%+v", o)
		}
		wait.For(t, "it is ended", func() bool { return !lives(pids[0]) })
	})
}

// TestNoExec can reach the cluster no more when it has to end a command.
func TestNoExec(t *testing.T) {
	m := shells(t)["dash"]
	var down atomic.Bool
	m.before = func(kind string, _ plain.Command) error {
		if down.Load() && kind == "ill" {
			return errors.New("429: too many connections")
		}
		return nil
	}
	b := newBed(t, m)
	s := b.begin(agent.Start{Argv: []string{"sh", "-c", "echo $$ >group; sleep 1000"}})
	pids := b.pids("group")
	down.Store(true)
	if err := s.Kill(0); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "it was tried", func() bool { return m.count("ill") > 4 })
	down.Store(false)
	if o := follow(s); o.exit.Signal != "SIGKILL" || o.err != nil {
		t.Errorf("%+v", o)
	}
	b.gone(t, pids)
}

// counter is a program that counts a signal, and ends with another.
const counter = `trap 'echo usr1' USR1; trap 'echo int; exit 0' INT; echo ready; while :; do sleep 0.05; done`

// TestALostSignalIsNotSentTwice loses the answer of an exec after the program had
// its signal.
func TestALostSignalIsNotSentTwice(t *testing.T) {
	m := shells(t)["dash"]
	broke, cut := context.WithCancel(t.Context())
	m.during = func(kind string) context.Context {
		if kind == "ill" && broke.Err() == nil {
			return broke
		}
		return context.Background()
	}
	came := make(chan struct{})
	m.answers = func(kind string, to io.Writer) io.Writer {
		if kind != "ill" || broke.Err() != nil {
			return to
		}
		return writer(func(b []byte) (int, error) {
			if !bytes.Contains(b, []byte("ended")) {
				return to.Write(b)
			}
			<-came
			cut()
			return 0, io.ErrClosedPipe
		})
	}
	b := newBed(t, m)
	s := b.begin(agent.Start{Argv: []string{"sh", "-c", counter}})
	ready(t, s, "ready\n")
	if err := s.Signal("SIGUSR1"); err != nil {
		t.Fatal(err)
	}
	ready(t, s, "usr1\n")
	close(came)
	wait.For(t, "the loss is reported, or it is sent again", func() bool { return b.reports.has("signal an execution") || m.count("ill") > 1 })
	if n := m.count("ill"); n != 1 {
		t.Errorf("the signal was sent %d times", n)
	}
	if err := s.Signal("SIGINT"); err != nil {
		t.Fatal(err)
	}
	if o := follow(s); o.stdout != "int\n" || o.exit.Code != 0 || o.err != nil {
		t.Errorf("%+v", o)
	}
}

// TestASignalIsTriedUntilItIsSent loses execs before any of them sends the signal.
func TestASignalIsTriedUntilItIsSent(t *testing.T) {
	m := shells(t)["dash"]
	m.before = func(kind string, _ plain.Command) error {
		switch n := m.count("ill"); {
		case kind == "ill" && n == 1:
			return errFalseExit
		case kind == "ill" && n == 2:
			return errors.New("429: too many connections")
		}
		return nil
	}
	b := newBed(t, m)
	s := b.begin(agent.Start{Argv: []string{"sh", "-c", counter}})
	ready(t, s, "ready\n")
	for _, name := range []string{"SIGUSR1", "SIGINT"} {
		if err := s.Signal(name); err != nil {
			t.Fatal(err)
		}
		if name == "SIGUSR1" {
			ready(t, s, "usr1\n")
		}
	}
	if o := follow(s); o.stdout != "int\n" || o.exit.Code != 0 || o.err != nil {
		t.Errorf("%+v", o)
	}
	if n := m.count("ill"); n != 4 {
		t.Errorf("%d execs for two signals, of which two were lost", n)
	}
}

// A writer is a function that writes.
type writer func(b []byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

// TestLeftovers has a server that is gone without a word, and its successor.
func TestLeftovers(t *testing.T) {
	onEach(t, func(t *testing.T, b *bed) {
		first := b.runner
		s := b.begin(agent.Start{Argv: []string{"sh", "-c", family + "sleep 1000"}})
		pids := b.pids("group", "session", "naked", "far")
		other := newBed(t, &machine{shell: b.machine.shell, path: b.machine.path})
		_ = other.begin(agent.Start{Argv: []string{"sh", "-c", "echo $$ >group; sleep 1000"}})
		others := other.pids("group")
		b.open()
		b.gone(t, pids)
		if !lives(others[0]) {
			t.Error("another runner's execution was ended")
		}
		if o := b.sh("echo new"); o.stdout != "new\n" {
			t.Errorf("%+v", o)
		}
		_ = s.Close()
		first.Close()
	})
}

// TestBareImages have less and less.
func TestBareImages(t *testing.T) {
	all := shells(t)
	m, busybox := all["dash"], all["busybox"].shell[0] // whose own shell needs no files for its programs
	m.path = applets(t, busybox, "env", "cat", "mkdir")
	b := newBed(t, m)
	missing := strings.Join(b.runner.Missing(), "\n")
	for _, tool := range []string{"grep", "setsid", "mkfifo", "stty", "sleep", "find", "mv"} {
		if !strings.Contains(missing, "no "+tool) && !strings.Contains(missing, tool+" and") && !strings.Contains(missing, ", "+tool) {
			t.Errorf("%s isn't said to be missing: %s", tool, missing)
		}
	}
	o := follow(b.begin(agent.Start{Argv: []string{"cat", "/proc/self/comm", "/nowhere"}, Env: []string{"PATH=" + m.path}}))
	if o.stdout != "cat\n" || o.exit.Code != 1 || !strings.Contains(o.stderr, "/nowhere") || o.err != nil {
		t.Errorf("%+v", o)
	}
	// Its own session isn't to be had, and it is ended all the same.
	s := b.begin(agent.Start{Argv: []string{"env", "cat"}, Stdin: true, TimeLimit: 100 * time.Millisecond, Env: []string{"PATH=" + m.path}})
	if o := follow(s); o.exit.Signal != "SIGKILL" || o.exit.Cause != agent.CauseTimeLimit || o.err != nil {
		t.Errorf("%+v", o)
	}
	s = b.begin(agent.Start{Argv: []string{"cat", "/nowhere"}, Terminal: size, Env: []string{"PATH=" + m.path}})
	if o := follow(s); !strings.Contains(o.stdout, "/nowhere") || o.exit.Code != 1 || o.err != nil {
		t.Errorf("%+v", o)
	}
	if _, err := b.list("", false); refused(t, err).Code != agent.ErrDenied {
		t.Errorf("%v", err)
	}
	m.path = applets(t, busybox, "cat")
	if _, err := plain.Open(t.Context(), m, plain.Config{Name: "bare"}); !errors.Is(err, plain.ErrImpossible) {
		t.Errorf("without env: %v", err)
	}
}
