package main

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

// streams are a command's descriptors 0 to 2, and our ends of them: pipes, or
// two terminals.
type streams struct {
	theirs    []uintptr
	handed    []int      // those of theirs that are to be closed once the command has them
	ours      []*os.File // to be closed at the end
	terminals []*os.File // those of ours that are terminals; the first is the controlling one

	stdin  io.WriteCloser // nil: none
	stdout *outlet
	stderr *outlet
}

// openStreams makes what a command of the user with this id needs.
func (h *host) openStreams(start agent.Start, uid uint32) (*streams, error) {
	s := &streams{}
	var err error
	if start.Terminal != nil {
		err = s.openTerminals(h, *start.Terminal, uid)
	} else {
		err = s.openPipes(h, start.Stdin, uid)
	}
	if err != nil {
		s.handedOver()
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *streams) openPipes(h *host, stdin bool, uid uint32) error {
	in := h.null
	if stdin {
		theirs, ours, err := s.pipe(h, 0, uid)
		if err != nil {
			return err
		}
		in, s.stdin = theirs, ours
	}
	out, ourOut, err := s.pipe(h, 1, uid)
	if err != nil {
		return err
	}
	errors, ourErrors, err := s.pipe(h, 1, uid)
	if err != nil {
		return err
	}
	s.stdout, s.stderr = newOutlet(ourOut, false), newOutlet(ourErrors, false)
	s.theirs = []uintptr{uintptr(in), uintptr(out), uintptr(errors)}
	return nil
}

// pipe makes a pipe whose end number which (0 reads, 1 writes) is the
// command's.
func (s *streams) pipe(h *host, which int, uid uint32) (theirs int, ours *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return -1, nil, err
	}
	theirs = fds[which]
	s.handed = append(s.handed, theirs)
	err = unix.SetNonblock(fds[1-which], true)
	ours = os.NewFile(uintptr(fds[1-which]), "pipe")
	s.ours = append(s.ours, ours)
	if err == nil && h.marking && uid != 0 {
		// So that the command can open /dev/stdout, which is looked up by owner.
		err = unix.Fchown(theirs, int(uid), int(uid))
	}
	return theirs, ours, err
}

// handedOver closes the command's ends, which it has now, or never will.
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

// An outlet reads a command's pipe until its end, or, once nothing of the
// execution is left, until what was in it then: somebody else may hold the
// other end, and keep on printing.
type outlet struct {
	file     *os.File
	terminal bool
	left     int // bytes that may still be read at the end; -1 before it
}

func newOutlet(file *os.File, terminal bool) *outlet {
	return &outlet{file: file, terminal: terminal, left: -1}
}

// finish makes reads end after what is in the pipe.
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
			o.left = mostInTerminal // it doesn't tell what is on its way
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
