package output

import (
	"bytes"
	"context"
	"io"
	"os"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// onTerminal returns a terminal of 100 columns and 30 rows, and its settings.
func onTerminal(t *testing.T) (*Terminal, func() unix.Termios) {
	t.Helper()
	master, slave, err := pty.Open()
	if err == nil {
		err = pty.Setsize(master, &pty.Winsize{Cols: 100, Rows: 30})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slave.Close(); _ = master.Close() })
	opened, err := OpenTerminal(slave, slave, slave)
	if err != nil {
		t.Fatal(err)
	}
	return opened, func() unix.Termios {
		state, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		return *state
	}
}

func TestTerminalIsRestored(t *testing.T) {
	terminal, state := onTerminal(t)
	before := state()
	ways := map[string]func(){
		"restore":       terminal.Restore,
		"restore twice": func() { terminal.Restore(); terminal.Restore() },
		"panic": func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			terminal.Guard(func() { panic("in a goroutine") })
		},
	}
	for name, way := range ways {
		if err := terminal.MakeRaw(context.Background()); err != nil {
			t.Fatal(err)
		}
		if state() == before {
			t.Errorf("%s: it was never raw", name)
		}
		way()
		if state() != before {
			t.Errorf("%s: left as %+v, want %+v", name, state(), before)
		}
	}
	terminal.Restore()
	if state() != before {
		t.Error("what isn't raw was changed")
	}
}

func TestSameTerminalComparesDevices(t *testing.T) {
	terminal, _ := onTerminal(t)
	other, _ := onTerminal(t)
	if !terminal.same || sameTerminal(terminal.in, other.in) || sameTerminal(terminal.in, &bytes.Buffer{}) {
		t.Error("what is one terminal isn't known")
	}
	if columns, rows := terminal.size(); columns != 100 || rows != 30 {
		t.Errorf("%d columns, %d rows", columns, rows)
	}
	for _, in := range []io.Reader{nil, &bytes.Buffer{}, os.NewFile(^uintptr(0), "closed")} {
		if _, err := OpenTerminal(in, nil, nil); err == nil {
			t.Errorf("%T is a terminal", in)
		}
	}
}
