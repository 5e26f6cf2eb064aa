package process

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

// streams are a command's descriptors 0 to 2 and the agent's ends of them. Stdin and each outlet
// are for one goroutine each.
type streams struct {
	files          []uintptr      // the command's ends, indexed by descriptor
	stdin          io.WriteCloser // nil if it has none
	stdout, stderr *outlet

	handed    []int      // those of files to close after the command's start
	ours      []*os.File // closed by close
	terminals []*os.File // those of ours that are terminals; the first is the controlling one
}

// openStreams creates the streams of a command. A command without stdin reads from null, a descriptor of
// /dev/null. If owner isn't 0 it owns the command's ends, so that the command may open /dev/stdout,
// which needs the permission.
func openStreams(start agent.Start, null, owner int) (*streams, error) {
	s := &streams{}
	var err error
	if start.Terminal != nil {
		err = s.openTerminals(*start.Terminal, owner)
	} else {
		err = s.openPipes(null, start.Stdin, owner)
	}
	if err != nil {
		s.handedOver()
		s.close()
		return nil, err
	}
	return s, nil
}

// openPipes creates the pipes of a command without a terminal. After an error the caller closes
// those that exist.
func (s *streams) openPipes(null int, stdin bool, owner int) error {
	in := null
	if stdin {
		theirs, ours, err := s.pipe(0, owner)
		if err != nil {
			return err
		}
		in, s.stdin = theirs, ours
	}
	out, ourOut, err := s.pipe(1, owner)
	if err != nil {
		return err
	}
	errors, ourErrors, err := s.pipe(1, owner)
	if err != nil {
		return err
	}
	s.stdout, s.stderr = newOutlet(ourOut, false), newOutlet(ourErrors, false)
	s.files = []uintptr{uintptr(in), uintptr(out), uintptr(errors)}
	return nil
}

// pipe creates a pipe. Which is the command's end: 0 reads, 1 writes.
func (s *streams) pipe(which, owner int) (theirs int, ours *os.File, err error) {
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

// handedOver closes the command's ends. Call it after the command's start, or after that failed.
func (s *streams) handedOver() {
	for _, fd := range s.handed {
		_ = unix.Close(fd)
	}
	s.handed = nil
}

func (s *streams) close() {
	for _, file := range s.ours {
		_ = file.Close()
	}
}

// An outlet reads a command's output to its end. After finish it reads only what was in the pipe or
// terminal at that time, since another execution may hold the other end and keep printing.
type outlet struct {
	file     *os.File
	terminal bool
	left     int // bytes that may still be read after finish; -1 before
}

func newOutlet(file *os.File, terminal bool) *outlet {
	return &outlet{file: file, terminal: terminal, left: -1}
}

// finish makes reads end after the bytes that are in the pipe now. Call it when no process of the
// execution is left.
func (o *outlet) finish() { _ = o.file.SetReadDeadline(time.Unix(1, 0)) }

func (o *outlet) Read(b []byte) (int, error) {
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
