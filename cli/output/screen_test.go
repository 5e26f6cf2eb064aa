package output

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/test/wait"
)

// TestScreen checks that lines are cut to the window, keys arrive immediately, and Close restores
// the terminal.
func TestScreen(t *testing.T) {
	master, slave, err := pty.Open()
	if err == nil {
		err = pty.Setsize(master, &pty.Winsize{Cols: 10, Rows: 3})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slave.Close(); _ = master.Close() })
	state := func() unix.Termios {
		state, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		return *state
	}
	before := state()
	s, err := OpenScreen(slave, slave)
	if err != nil || s == nil {
		t.Fatal(s, err)
	}
	if now := state(); now.Lflag&(unix.ECHO|unix.ICANON) != 0 || now.Lflag&unix.ISIG == 0 {
		t.Errorf("the terminal is %+v", now)
	}
	if err := s.Draw([]string{"short", strings.Repeat("é", 11), "third", "fourth"}); err != nil {
		t.Fatal(err)
	}
	if key := s.Key(t.Context(), time.Now()); key != 0 {
		t.Errorf("nobody pressed %q, want 0", key)
	}
	if _, err := master.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if key := s.Key(t.Context(), time.Now().Add(wait.Limit)); key != 'x' {
		t.Errorf("the key is %q", key)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if key := s.Key(ended, time.Now().Add(wait.Limit)); key != 0 {
		t.Errorf("after the end: got %q, want 0", key)
	}
	s.Close()
	if state() != before {
		t.Errorf("left as %+v, want %+v", state(), before)
	}
	want := "\x1b[?1049h\x1b[?25l\x1b[Hshort\x1b[K\r\n" + strings.Repeat("é", 9) + "…\x1b[K\r\nthird\x1b[K\x1b[J\x1b[?25h\x1b[?1049l"
	got := make([]byte, 0, 1<<10)
	for len(got) < len(want) {
		n, err := master.Read(got[len(got):cap(got)])
		if err != nil {
			t.Fatal(err)
		}
		got = got[:len(got)+n]
	}
	if string(got) != want {
		t.Errorf("%q", got)
	}
}

func TestNoScreen(t *testing.T) {
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if s, err := OpenScreen(file, file); s != nil || err != nil {
		t.Error("a file is a screen", err)
	}
	if s, err := OpenScreen(nil, &bytes.Buffer{}); s != nil || err != nil {
		t.Error("nothing is a screen", err)
	}
}
