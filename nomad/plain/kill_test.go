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
)

// pids reads the numbers that a command wrote into files of its directory.
func (b *bed) pids(names ...string) []int {
	b.t.Helper()
	var pids []int
	for _, name := range names {
		eventually(b.t, name+" is written", func() bool {
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
	end := time.Now().Add(5 * time.Second)
	for _, pid := range pids {
		for lives(pid) && time.Now().Before(end) {
			<-time.After(10 * time.Millisecond)
		}
		if lives(pid) {
			cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			t.Errorf("process %d lives: %q %s", pid, cmdline, stat)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func TestTimeLimit(t *testing.T) {
	onEach(t, func(t *testing.T, b *bed) {
		s := b.begin(agent.Start{Argv: []string{"sh", "-c", family + "echo ready; sleep 1000"}, TimeLimit: 5 * time.Second})
		pids := b.pids("group", "session", "naked", "far")
		o := follow(s)
		if o.stdout != "ready\n" || o.exit.Cause != agent.CauseTimeLimit || o.exit.Signal != "SIGKILL" || o.err != nil {
			t.Errorf("%+v", o)
		}
		b.gone(t, pids)
	})
}

func TestCancel(t *testing.T) {
	onEach(t, func(t *testing.T, b *bed) {
		s := b.begin(agent.Start{Argv: []string{"sh", "-c", `trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.05; done`}})
		ready(t, s, "ready\n")
		if err := s.Kill(10 * time.Second); err != nil {
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

// TestLeftBehind has commands that end before what they started.
func TestLeftBehind(t *testing.T) {
	onEach(t, func(t *testing.T, b *bed) {
		began := time.Now()
		o := b.sh("(sleep 0.02; echo late) & " + family + "echo ready")
		if !strings.Contains(o.stdout, "ready\n") || !strings.Contains(o.stdout, "late\n") || o.exit.Code != 0 || o.err != nil || time.Since(began) > 10*time.Second {
			t.Errorf("%+v after %v", o, time.Since(began))
		}
		b.gone(t, b.pids("group", "session", "naked"))
		// Nothing tells whose this was: Missing says so.
		_ = syscall.Kill(-b.pids("far")[0], syscall.SIGKILL)
	})
}

func TestSignal(t *testing.T) {
	onEach(t, func(t *testing.T, b *bed) {
		s := b.begin(agent.Start{Argv: []string{"sh", "-c", `trap 'echo usr1' USR1; trap 'echo int; exit 0' INT; echo ready; while :; do sleep 0.05; done`}})
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

// TestStalledReader ends an execution whose output nobody takes.
func TestStalledReader(t *testing.T) {
	onEach(t, func(t *testing.T, b *bed) {
		s := b.begin(agent.Start{Argv: []string{"sh", "-c", "echo $$ >group; exec yes"}})
		pids := b.pids("group")
		if _, err := s.Next(); err != nil {
			t.Fatal(err)
		}
		if err := s.Kill(0); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is killed", func() bool { return !lives(pids[0]) })
		if o := follow(s); o.exit.Signal != "SIGKILL" || o.err != nil || len(o.stdout) < 100_000 {
			t.Errorf("%d bytes, %+v, %v", len(o.stdout), o.exit, o.err)
		}
	})
}
