// Package streams creates a command's descriptors 0 to 2 and the agent's ends of them: pipes, or
// two terminals. It guarantees that all output printed before the end of an execution can be read.
package streams

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

// Streams are a command's descriptors 0 to 2 and the agent's ends of them. Stdin and each Outlet
// are for one goroutine each.
type Streams struct {
	Files          []uintptr      // the command's ends, indexed by descriptor
	Stdin          io.WriteCloser // nil: none
	Stdout, Stderr *Outlet

	handed    []int      // those of Files to close after the command's start
	ours      []*os.File // closed by Close
	terminals []*os.File // those of ours that are terminals; the first is the controlling one
}

// Open creates the streams of a command. A command without stdin reads from null, a descriptor of
// /dev/null. If owner isn't 0 it owns the command's ends, so that the command may open /dev/stdout,
// which needs the permission.
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

// openPipes creates the pipes of a command without a terminal. After an error the caller closes
// those that exist.
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

// pipe creates a pipe. Which is the command's end: 0 reads, 1 writes.
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

// HandedOver closes the command's ends. Call it after the command's start, or after that failed.
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

// An Outlet reads a command's output to its end. After Finish it reads only what was in the pipe or
// terminal at that time, since another execution may hold the other end and keep printing.
type Outlet struct {
	file     *os.File
	terminal bool
	left     int // bytes that may still be read after Finish; -1 before
}

// newOutlet returns an outlet of an open file, before Finish.
func newOutlet(file *os.File, terminal bool) *Outlet {
	return &Outlet{file: file, terminal: terminal, left: -1}
}

// Finish makes reads end after the bytes that are in the pipe now. Call it when no process of the
// execution is left.
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
			o.left = mostInTerminal // a terminal doesn't report how much it holds
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
