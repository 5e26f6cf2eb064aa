package terminal

import (
	"context"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// A Screen is the whole of the user's terminal, for a while. What was there comes back when it is
// closed. Ctrl-C stays the signal that it is.
type Screen struct {
	terminal *Terminal
	out      *os.File
}

// OpenScreen takes the terminal that both standard input and output are; nil: they are none.
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

// makeSilent hands each key over at once, and shows none.
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

// Close gives the terminal back as it was.
func (s *Screen) Close() {
	_, _ = s.out.WriteString("\x1b[?25h\x1b[?1049l") // one that is gone needs nothing
	s.terminal.Restore()
}

// Draw shows lines, as far as they fit.
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

// Key returns a key that was pressed before a time; 0: none was.
func (s *Screen) Key(ctx context.Context, until time.Time) byte {
	fds := []unix.PollFd{{Fd: int32(s.terminal.in.Fd()), Events: unix.POLLIN}}
	for ctx.Err() == nil {
		left := time.Until(until)
		if left <= 0 {
			return 0
		}
		// Signals come to any thread: ctx is looked at again soon.
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
