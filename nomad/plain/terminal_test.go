package plain_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/nomad/plain"
	"github.com/rockpool/rockpool/test/wait"
)

var size = &agent.Size{Columns: 97, Rows: 31}

func TestTerminal(t *testing.T) {
	onEach(t, func(t *testing.T, b *bed) {
		s := b.begin(agent.Start{Argv: []string{"sh", "-c", "tty >/dev/null && stty size; echo err >&2; exit 3"}, Terminal: size})
		if o := follow(s); o.stdout != "31 97\r\n" || o.stderr != "err\n" || o.exit.Code != 3 || o.err != nil {
			t.Errorf("%+v", o)
		}
		b.noFIFOs(t)
	})
}

// noFIFOs insists that nothing is left of them.
func (b *bed) noFIFOs(t *testing.T) {
	t.Helper()
	wait.For(t, "no FIFO is left", func() bool {
		names, err := filepath.Glob(filepath.Join(b.room(), "rockpool-*"))
		return err == nil && len(names) == 0
	})
}

// room is where the runner of a machine makes its FIFOs.
func (b *bed) room() string { return b.machine.room }

func TestTerminalStdin(t *testing.T) {
	onEach(t, func(t *testing.T, b *bed) {
		s := b.begin(agent.Start{Argv: []string{"sh", "-c", `echo ready; read -r line; echo "got $line" >&2; cat; echo over`}, Terminal: size})
		ready(t, s, "ready")
		if _, err := s.WriteStdin(t.Context(), 0, []byte("hi\n")); err != nil {
			t.Fatal(err)
		}
		ready(t, s, "got hi\n")
		if _, err := s.WriteStdin(t.Context(), 3, []byte("middle")); err != nil {
			t.Fatal(err)
		}
		if err := s.CloseStdin(); err != nil {
			t.Fatal(err)
		}
		if o := follow(s); !strings.HasSuffix(o.stdout, "middleover\r\n") || o.exit.Code != 0 || o.err != nil {
			t.Errorf("%+v", o)
		}
	})
}

// TestTypedAhead ends a command before what was typed is read.
func TestTypedAhead(t *testing.T) {
	onEach(t, func(t *testing.T, b *bed) {
		s := b.begin(agent.Start{Argv: []string{"sh", "-c", "sleep 0.2; echo over"}, Terminal: size})
		go s.WriteStdin(t.Context(), 0, []byte("one\ntwo "+strings.Repeat("x", 100_000))) // the command may end first
		if o := follow(s); !strings.Contains(o.stdout, "over\r\n") || o.exit.Code != 0 || o.err != nil {
			t.Errorf("%.100q %+v %v", o.stdout, o.exit, o.err)
		}
		b.noFIFOs(t)
	})
}

func TestTerminalSignals(t *testing.T) {
	onEach(t, func(t *testing.T, b *bed) {
		s := b.begin(agent.Start{Argv: []string{"sh", "-c", "echo ready; exec sleep 1000"}, Terminal: size})
		ready(t, s, "ready")
		if _, err := s.WriteStdin(t.Context(), 0, []byte{3}); err != nil { // Ctrl-C
			t.Fatal(err)
		}
		if o := follow(s); o.exit.Signal != "SIGINT" || o.err != nil {
			t.Errorf("%+v", o)
		}
		s = b.begin(agent.Start{Argv: []string{"sh", "-c", "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done"}, Terminal: size})
		ready(t, s, "ready")
		if err := s.Resize(agent.Size{Columns: 40, Rows: 20}); err != nil {
			t.Fatal(err)
		}
		if o := follow(s); !strings.Contains(o.stdout, "20 40\r\n") || o.err != nil {
			t.Errorf("%+v", o)
		}
		s = b.begin(agent.Start{Argv: []string{"sh", "-c", "trap 'echo usr1; exit 0' USR1; echo ready; while :; do sleep 0.05; done"}, Terminal: size})
		ready(t, s, "ready")
		if err := s.Signal("SIGUSR1"); err != nil {
			t.Fatal(err)
		}
		if o := follow(s); !strings.Contains(o.stdout, "usr1\r\n") || o.err != nil || o.exit.Code != 0 {
			t.Errorf("%+v", o)
		}
		s = b.begin(agent.Start{Argv: []string{"sh", "-c", family + "trap '' HUP TERM; echo ready; while :; do sleep 1; done"}, Terminal: size})
		ready(t, s, "ready")
		pids := b.pids("group", "session", "naked", "far")
		if err := s.Kill(100 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if o := follow(s); o.exit.Signal != "SIGKILL" || o.err != nil {
			t.Errorf("%+v", o)
		}
		b.gone(t, pids)
		b.noFIFOs(t)
	})
}

// TestStderrFails has a machine on which the FIFO can't be read at first, or
// ever.
func TestStderrFails(t *testing.T) {
	for _, times := range []int64{2, 1 << 30} {
		m := shells(t)["dash"]
		var failed atomic.Int64
		m.before = func(kind string, _ plain.Command) error {
			if kind == "tap" && failed.Add(1) <= times {
				return errors.New("rpc error: no path to region")
			}
			return nil
		}
		b := newBed(t, m)
		s := b.begin(agent.Start{Argv: []string{"sh", "-c", "head -c 200000 /dev/zero >&2; echo over"}, Terminal: size})
		o := follow(s)
		if times == 2 {
			if o.err != nil || len(o.stderr) != 200_000 || o.stdout != "over\r\n" {
				t.Errorf("%d bytes of stderr, %q, %v", len(o.stderr), o.stdout, o.err)
			}
			continue
		}
		if o.err == nil {
			t.Errorf("an exit: %+v", o.exit)
		}
		b.noFIFOs(t)
	}
}

// TestStderrBreaks loses the exec that reads the FIFO in the middle.
func TestStderrBreaks(t *testing.T) {
	m := shells(t)["dash"]
	broke, stop := context.WithCancel(t.Context())
	m.during = func(kind string) context.Context {
		if kind == "tap" {
			return broke
		}
		return context.Background()
	}
	b := newBed(t, m)
	s := b.begin(agent.Start{Argv: []string{"sh", "-c", "echo $$ >group; echo some >&2; sleep 1000"}, Terminal: size})
	pids := b.pids("group")
	ready(t, s, "some\n")
	stop()
	if o := follow(s); o.err == nil {
		t.Errorf("an exit: %+v", o.exit)
	}
	wait.For(t, "it is ended", func() bool { return !lives(pids[0]) })
	b.noFIFOs(t)
	if _, err := os.Stat(b.runner.Workspace()); err != nil {
		t.Error(err)
	}
}
