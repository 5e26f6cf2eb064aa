package output

import (
	"context"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// A Screen is the user's whole terminal in its alternate screen. Close restores the terminal's
// contents and settings. Ctrl-C still sends SIGINT.
type Screen struct {
	terminal *Terminal
	out      *os.File
}

// OpenScreen opens the terminal that both in and out are; it returns nil if they aren't the same terminal.
func OpenScreen(in io.Reader, out io.Writer) (*Screen, error) {
	file, ok := in.(*os.File)
	if !ok || !sameTerminal(file, out) {
		return nil, nil
	}
	s := &Screen{terminal: &Terminal{in: file}, out: out.(*os.File)}
	if err := s.terminal.makeSilent(); err != nil {
		return nil, err
	}
	_, err := s.out.WriteString("\x1b[?1049h\x1b[?25l") // the alternate screen, without a cursor
	return s, err
}

// makeSilent makes the terminal deliver each key immediately and without echo.
func (t *Terminal) makeSilent() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	fd := int(t.in.Fd())
	saved, err := term.GetState(fd)
	if err != nil {
		return err
	}
	now, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	now.Lflag &^= unix.ICANON | unix.ECHO
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, now); err != nil {
		return err
	}
	t.saved = saved
	return nil
}

// Close restores the terminal.
func (s *Screen) Close() {
	_, _ = s.out.WriteString("\x1b[?25h\x1b[?1049l") // an error means that the terminal is gone
	s.terminal.Restore()
}

// Draw shows lines from the top, cut to the size of the terminal.
func (s *Screen) Draw(lines []string) error {
	columns, rows := s.terminal.size()
	var text strings.Builder
	text.WriteString("\x1b[H")
	for i, line := range lines[:min(len(lines), rows)] {
		if i > 0 {
			text.WriteString("\n")
		}
		if runes := []rune(line); len(runes) > columns {
			line = string(runes[:columns-1]) + "…"
		}
		text.WriteString(line + "\x1b[K")
	}
	text.WriteString("\x1b[J")
	_, err := s.out.WriteString(text.String())
	return err
}

// Key returns the next key that is pressed before a time, or 0 if none is or ctx ends. It returns 'q' if
// the terminal hung up.
func (s *Screen) Key(ctx context.Context, until time.Time) byte {
	fds := []unix.PollFd{{Fd: int32(s.terminal.in.Fd()), Events: unix.POLLIN}}
	for ctx.Err() == nil {
		left := time.Until(until)
		if left <= 0 {
			return 0
		}
		// A signal can interrupt another thread than this one, so check ctx again after 50 ms.
		n, err := unix.Poll(fds, int(min(left, 50*time.Millisecond)/time.Millisecond)+1)
		if n <= 0 || err != nil {
			continue
		}
		var key [1]byte
		if n, err := s.terminal.in.Read(key[:]); err != nil || n == 0 {
			return 'q' // it hung up
		}
		return key[0]
	}
	return 0
}
