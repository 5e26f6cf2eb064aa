package plain_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/test/executable"
	"github.com/rockpool/rockpool/test/wait"
)

// pids reads the numbers that a command wrote into files of its directory.
func (b *bed) pids(names ...string) []int {
	b.t.Helper()
	var pids []int
	for _, name := range names {
		wait.For(b.t, name+" is written", func() bool {
			text, _ := os.ReadFile(filepath.Join(b.runner.Workspace(), name))
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err == nil {
				pids = append(pids, pid)
			}
			return err == nil
		})
	}
	return pids
}

func lives(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

// family starts processes in all ways to get away: in the group, in a session of
// its own, without its environment, and with a hostile name.
const family = `
sleep 1000 & echo $! >group
setsid sh -c 'echo $$ >session; exec sleep 1000' &
env -i PATH="$PATH" sh -c 'echo $$ >naked; sleep 1000; :' &
setsid env -i PATH="$PATH" sh -c 'echo $$ >far; sleep 1000; :' &
while [ ! -s session ] || [ ! -s naked ] || [ ! -s far ]; do sleep 0.01; done
`

// gone waits for the end of processes, which were told to end: what is past its
// end isn't a zombie at once. None of them ends by itself meanwhile.
func (b *bed) gone(t *testing.T, pids []int) {
	t.Helper()
	defer func() { // of a test that fails
		for _, pid := range pids {
			if lives(pid) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}()
	for i, pid := range pids {
		wait.For(t, fmt.Sprintf("process %d of %v ends", i, pids), func() bool { return !lives(pid) })
	}
}

func TestTimeLimit(t *testing.T) {
	onEach(t, func(t *testing.T, b *bed) {
		const limit = 300 * time.Millisecond
		o := follow(b.begin(agent.Start{Argv: []string{"sleep", "1000"}, TimeLimit: limit}))
		if o.exit.Cause != agent.CauseTimeLimit || o.exit.Signal != "SIGKILL" || o.exit.Wall < limit || o.err != nil {
			t.Errorf("%+v", o)
		}
	})
}

// TestKill ends what gets away in all ways.
func TestKill(t *testing.T) {
	onEach(t, func(t *testing.T, b *bed) {
		s := b.begin(agent.Start{Argv: []string{"sh", "-c", family + "echo ready; sleep 1000"}})
		pids := b.pids("group", "session", "naked", "far")
		ready(t, s, "ready\n")
		if err := s.Kill(0); err != nil {
			t.Fatal(err)
		}
		if o := follow(s); o.stdout != "" || o.exit.Cause != agent.CauseKill || o.exit.Signal != "SIGKILL" || o.err != nil {
			t.Errorf("%+v", o)
		}
		b.gone(t, pids)
	})
}

func TestCancel(t *testing.T) {
	onEach(t, func(t *testing.T, b *bed) {
		s := b.begin(agent.Start{Argv: []string{"sh", "-c", `trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.05; done`}})
		ready(t, s, "ready\n")
		if err := s.Kill(wait.Limit); err != nil {
			t.Fatal(err)
		}
		if o := follow(s); o.stdout != "bye\n" || o.exit.Code != 5 || o.exit.Cause != agent.CauseKill || o.err != nil {
			t.Errorf("%+v", o)
		}
		s = b.begin(agent.Start{Argv: []string{"sh", "-c", `trap '' TERM; echo ready; while :; do sleep 0.05; done`}})
		ready(t, s, "ready\n")
		began := time.Now()
		if err := s.Kill(300 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if o := follow(s); o.exit.Signal != "SIGKILL" || o.exit.Cause != agent.CauseKill || time.Since(began) < 300*time.Millisecond {
			t.Errorf("%+v after %v", o, time.Since(began))
		}
	})
}

// ready reads until the command printed text.
func ready(t *testing.T, s *agent.Session, text string) {
	t.Helper()
	for printed := ""; !strings.Contains(printed, text); {
		event, err := s.Next()
		if err != nil || event.Kind == agent.KindExited {
			t.Fatalf("%q, then %+v, %v", printed, event, err)
		}
		printed += string(event.Data)
		if event.Kind == agent.KindOutput {
			_ = s.Ack(event.Offset + int64(len(event.Data)))
		}
	}
}

// TestLeftBehind has commands that end before what they started, which would go on
// for longer than a test may.
func TestLeftBehind(t *testing.T) {
	onEach(t, func(t *testing.T, b *bed) {
		o := b.sh(family + "echo ready")
		if o.stdout != "ready\n" || o.exit.Code != 0 || o.err != nil {
			t.Errorf("%+v", o)
		}
		b.gone(t, b.pids("group", "session", "naked"))
		// Nothing tells whose this was: Missing says so.
		_ = syscall.Kill(-b.pids("far")[0], syscall.SIGKILL)
	})
}

// TestWhatIsLeftBehindMayPrintForAMoment has a process that prints when its command
// has ended. The moment, a sleep, ends when that has happened.
func TestWhatIsLeftBehindMayPrintForAMoment(t *testing.T) {
	m := shells(t)["dash"]
	moment := t.TempDir()
	const sleep = "#!/bin/sh\n: >ended\nwhile [ ! -e printed ]; do /bin/sleep 0.01; done\n"
	executable.Write(t, filepath.Join(moment, "sleep"), []byte(sleep))
	m.path = moment + ":" + m.path
	b := newBed(t, m)
	o := b.sh("(while [ ! -e ended ]; do /bin/sleep 0.01; done; echo late; : >printed; exec /bin/sleep 1000) & echo $! >group; echo ready")
	if o.stdout != "ready\nlate\n" || o.exit.Code != 0 || o.err != nil {
		t.Errorf("%+v", o)
	}
	b.gone(t, b.pids("group"))
}

// TestSignal has each signal come once.
func TestSignal(t *testing.T) {
	onEach(t, func(t *testing.T, b *bed) {
		s := b.begin(agent.Start{Argv: []string{"sh", "-c", counter}})
		ready(t, s, "ready\n")
		if err := s.Signal("SIGUSR1"); err != nil {
			t.Fatal(err)
		}
		ready(t, s, "usr1\n")
		if err := s.Signal("SIGINT"); err != nil {
			t.Fatal(err)
		}
		if o := follow(s); o.stdout != "int\n" || o.exit.Code != 0 || o.exit.Cause != agent.CauseSelf {
			t.Errorf("%+v", o)
		}
	})
}

// printed returns how many bytes a process has written.
func printed(pid int) (n int) {
	counts, _ := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	_, after, _ := strings.Cut(string(counts), "wchar: ")
	_, _ = fmt.Sscan(after, &n)
	return n
}

// TestStalledReader ends an execution whose output nobody takes. What it printed
// arrives all the same.
func TestStalledReader(t *testing.T) {
	onEach(t, func(t *testing.T, b *bed) {
		s := b.begin(agent.Start{Argv: []string{"sh", "-c", "echo $$ >group; exec yes"}})
		pids := b.pids("group")
		if _, err := s.Next(); err != nil {
			t.Fatal(err)
		}
		wait.For(t, "it has printed more than a pipe holds", func() bool { return printed(pids[0]) >= 100_000 })
		if err := s.Kill(0); err != nil {
			t.Fatal(err)
		}
		wait.For(t, "it is killed", func() bool { return !lives(pids[0]) })
		if o := follow(s); o.exit.Signal != "SIGKILL" || o.err != nil || len(o.stdout) < 100_000 {
			t.Errorf("%d bytes, %+v, %v", len(o.stdout), o.exit, o.err)
		}
	})
}
