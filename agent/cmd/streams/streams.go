// Package streams makes a command's descriptors 0 to 2, and the agent's ends of them: pipes, or
// two terminals. Output that was printed before the end of an execution is never lost.
package streams

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

// Streams are a command's descriptors 0 to 2, and the agent's ends of them.
type Streams struct {
	Files          []uintptr      // the command's, by number
	Stdin          io.WriteCloser // nil: none
	Stdout, Stderr *Outlet

	handed    []int      // those of Files that are closed once the command has them
	ours      []*os.File // closed at the end
	terminals []*os.File // those of ours that are terminals; the first is the controlling one
}

// Open makes what a command needs. It reads from null, which is /dev/null, if it has no stdin.
// An owner that isn't 0 gets the command's ends: it may open /dev/stdout, which is looked up by
// owner.
func Open(start agent.Start, null, owner int) (*Streams, error) {
	s := &Streams{}
	var err error
	if start.Terminal != nil {
		err = s.openTerminals(*start.Terminal, owner)
	} else {
		err = s.openPipes(null, start.Stdin, owner)
	}
	if err != nil {
		s.HandedOver()
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Streams) openPipes(null int, stdin bool, owner int) error {
	in := null
	if stdin {
		theirs, ours, err := s.pipe(0, owner)
		if err != nil {
			return err
		}
		in, s.Stdin = theirs, ours
	}
	out, ourOut, err := s.pipe(1, owner)
	if err != nil {
		return err
	}
	errors, ourErrors, err := s.pipe(1, owner)
	if err != nil {
		return err
	}
	s.Stdout, s.Stderr = newOutlet(ourOut, false), newOutlet(ourErrors, false)
	s.Files = []uintptr{uintptr(in), uintptr(out), uintptr(errors)}
	return nil
}

// pipe makes a pipe whose end number which (0 reads, 1 writes) is the
// command's.
func (s *Streams) pipe(which, owner int) (theirs int, ours *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return -1, nil, err
	}
	theirs = fds[which]
	s.handed = append(s.handed, theirs)
	err = unix.SetNonblock(fds[1-which], true)
	ours = os.NewFile(uintptr(fds[1-which]), "pipe")
	s.ours = append(s.ours, ours)
	if err == nil && owner != 0 {
		err = unix.Fchown(theirs, owner, owner)
	}
	return theirs, ours, err
}

// HandedOver closes the command's ends, once the command has them or never will.
func (s *Streams) HandedOver() {
	for _, fd := range s.handed {
		_ = unix.Close(fd)
	}
	s.handed = nil
}

// Close closes the agent's ends.
func (s *Streams) Close() {
	for _, file := range s.ours {
		_ = file.Close()
	}
}

// An Outlet reads a command's output until its end. Once nothing of the execution is left, it
// only reads what was in it then: another execution may hold the other end, and keep on
// printing.
type Outlet struct {
	file     *os.File
	terminal bool
	left     int // bytes that may still be read at the end; -1 before it
}

func newOutlet(file *os.File, terminal bool) *Outlet {
	return &Outlet{file: file, terminal: terminal, left: -1}
}

// Finish makes reads end after what is in the pipe.
func (o *Outlet) Finish() { _ = o.file.SetReadDeadline(time.Unix(1, 0)) }

// Read implements io.Reader.
func (o *Outlet) Read(b []byte) (int, error) {
	n, err := o.file.Read(b)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	raw, err := o.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	n = 0
	controlErr := raw.Control(func(fd uintptr) {
		if o.left < 0 && o.terminal {
			o.left = mostInTerminal // it doesn't say how much is on its way
		}
		if o.left < 0 {
			if o.left, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ); err != nil {
				return
			}
		}
		if o.left > 0 {
			n, err = unix.Read(int(fd), b[:min(len(b), o.left)])
			o.left -= max(n, 0)
		}
	})
	if n <= 0 || err != nil || controlErr != nil {
		return 0, io.EOF
	}
	return n, nil
}
