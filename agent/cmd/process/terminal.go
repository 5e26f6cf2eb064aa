package process

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

// mostInTerminal is more output than a terminal's buffers can hold, in bytes.
const mostInTerminal = 128 << 10

// openTerminals creates a terminal for 0 and 1, the command's controlling one, and another one for
// 2, so that the outputs stay separate.
func (s *streams) openTerminals(size agent.Size, owner int) error {
	for range 2 {
		master, slave, err := openTerminal()
		if err != nil {
			return err
		}
		s.handed = append(s.handed, slave)
		file := os.NewFile(uintptr(master), "terminal")
		s.ours, s.terminals = append(s.ours, file), append(s.terminals, file)
		if owner != 0 {
			if err := unix.Fchown(slave, owner, -1); err != nil {
				return err
			}
		}
		// So that erasing removes a whole UTF-8 character.
		if settings, err := unix.IoctlGetTermios(slave, unix.TCGETS); err == nil {
			settings.Iflag |= unix.IUTF8
			_ = unix.IoctlSetTermios(slave, unix.TCSETS, settings)
		}
	}
	s.Resize(size)
	s.stdin = &keyboard{file: s.terminals[0], last: '\n'}
	s.stdout, s.stderr = newOutlet(s.terminals[0], true), newOutlet(s.terminals[1], true)
	first, second := uintptr(s.handed[0]), uintptr(s.handed[1])
	s.files = []uintptr{first, first, second}
	return nil
}

func openTerminal() (master, slave int, err error) {
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
	// The first path is the runner's own instance. Outside of a runner, most users may not open it.
	for _, path := range []string{"/dev/pts/ptmx", "/dev/ptmx"} {
		if master, err = unix.Open(path, flags|unix.O_NONBLOCK, 0); err == nil {
			break
		}
	}
	if err != nil {
		return -1, -1, err
	}
	if err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err == nil {
		slave, err = openPeer(master, flags)
	}
	if err != nil {
		_ = unix.Close(master)
		return -1, -1, err
	}
	return master, slave, nil
}

// openPeer opens the command's end. It avoids the end's path if the kernel can.
func openPeer(master, flags int) (int, error) {
	slave, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, uintptr(flags))
	if errno == 0 {
		return int(slave), nil
	}
	number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return -1, err
	}
	return unix.Open("/dev/pts/"+strconv.Itoa(number), flags, 0)
}

// Resize gives all terminals another size. Without any it does nothing.
func (s *streams) Resize(size agent.Size) {
	// The first one is the controlling terminal, whose change sends SIGWINCH. The program then finds the new
	// size on all.
	for _, terminal := range slices.Backward(s.terminals) {
		control(terminal, func(fd int) error {
			return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(size.Columns), Row: uint16(size.Rows)})
		})
	}
}

func (s *streams) hasTerminal() bool { return len(s.terminals) > 0 }

// foreground returns the process group in the foreground of the controlling terminal, 0 if there is
// none.
func (s *streams) foreground() (group int) {
	if s.hasTerminal() {
		control(s.terminals[0], func(fd int) (err error) {
			group, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
			return err
		})
	}
	return max(group, 0)
}

func control(file *os.File, f func(fd int) error) bool {
	raw, err := file.SyscallConn()
	if err != nil {
		return false
	}
	failed := false
	err = raw.Control(func(fd uintptr) { failed = f(int(fd)) != nil })
	return err == nil && !failed
}

// A keyboard is the input of a terminal. It implements serve.Ender.
type keyboard struct {
	file *os.File
	last byte // the last byte that was typed
}

func (k *keyboard) Write(b []byte) (int, error) {
	n, err := k.file.Write(b)
	if n > 0 {
		k.last = b[n-1]
	}
	return n, err
}

// End types the terminal's end-of-file character (Ctrl-D), as script(1) does. The terminal stays
// open, and the program may read again. In the middle of a line the first Ctrl-D only sends the
// line, so End types two.
func (k *keyboard) End() error {
	var settings *unix.Termios
	if !control(k.file, func(fd int) (err error) {
		settings, err = unix.IoctlGetTermios(fd, unix.TCGETS)
		return err
	}) {
		return nil // the terminal was hung up
	}
	times := 1
	if settings.Lflag&unix.ICANON != 0 && !strings.ContainsRune("\r\n", rune(k.last)) {
		times = 2
	}
	_, err := k.file.Write([]byte(strings.Repeat(string(rune(settings.Cc[unix.VEOF])), times)))
	return err
}

// Close ends a blocked Write. Output can still be read.
func (k *keyboard) Close() error { return k.file.SetWriteDeadline(time.Unix(1, 0)) }
