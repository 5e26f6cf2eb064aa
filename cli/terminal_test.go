package cli

import (
	"bytes"
	"context"
	"os"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// onTerminal returns a terminal of 100 columns and 30 rows, and how it is now.
func onTerminal(t *testing.T) (*terminal, func() unix.Termios) {
	t.Helper()
	master, slave, err := pty.Open()
	if err == nil {
		err = pty.Setsize(master, &pty.Winsize{Cols: 100, Rows: 30})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slave.Close(); _ = master.Close() })
	opened, err := openTerminal(Streams{In: slave, Out: slave, Err: slave})
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
		"restore":       terminal.restore,
		"restore twice": func() { terminal.restore(); terminal.restore() },
		"panic": func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			terminal.guard(func() { panic("in a goroutine") })
		},
	}
	for name, way := range ways {
		if err := terminal.makeRaw(context.Background()); err != nil {
			t.Fatal(err)
		}
		if state() == before {
			t.Errorf("%s: it was never raw", name)
		}
		way()
		if state() != before {
			t.Errorf("%s: left as %+v", name, state())
		}
	}
	terminal.restore()
	if state() != before {
		t.Error("what isn't raw was changed")
	}
}

func TestTerminalsAreToldApart(t *testing.T) {
	terminal, _ := onTerminal(t)
	other, _ := onTerminal(t)
	if !terminal.same || sameTerminal(terminal.in, other.in) || sameTerminal(terminal.in, &bytes.Buffer{}) {
		t.Error("what is one terminal isn't known")
	}
	if columns, rows := terminal.size(); columns != 100 || rows != 30 {
		t.Errorf("%d columns, %d rows", columns, rows)
	}
	for _, in := range []any{&bytes.Buffer{}, os.NewFile(^uintptr(0), "closed")} {
		s := Streams{}
		switch in := in.(type) {
		case *bytes.Buffer:
			s.In = in
		case *os.File:
			if in != nil {
				s.In = in
			}
		}
		if _, err := openTerminal(s); err == nil {
			t.Errorf("%T is a terminal", in)
		}
	}
}
