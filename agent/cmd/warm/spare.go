package warm

import (
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/groups"
	"github.com/rockpool/rockpool/agent/cmd/launch"
)

// A Spare is a child of a zygote that waits to become a command, once. The caller must call
// [Spare.End] or [Spare.Close]. It is for one goroutine.
type Spare struct {
	link
	pid      int
	pidfd    int             // -1 means none
	moved    bool            // it is in its command's group
	unreaped func(do func()) // as in Warmer
}

const (
	becomesWithin = 3 * time.Second // a child must become a command
	endsWithin    = time.Second     // a killed child must end
)

// Become gives the child all attributes of a command, in a group. No instruction of the command runs before [Spare.Go].
func (s *Spare) Become(c Command, argv []string, attr *launch.Attr, group *groups.Group) error {
	if !s.moved && group != nil && group.PerCommand() {
		if err := s.enter(group); err != nil {
			return err
		}
	}
	who := attr.Sys.Credential
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	terminal := "0"
	if attr.Sys.Setctty {
		terminal = "1"
	}
	fields := []string{attr.Dir, number(int64(who.Uid)), number(int64(who.Groups[1])), terminal}
	for _, limit := range attr.Limits {
		fields = append(fields, number(limit))
	}
	fields = append(fields, c.form, c.file, number(int64(len(argv))))
	// The number of arguments separates them from the environment.
	fields = append(append(fields, argv...), attr.Env...)
	files := make([]int, len(attr.Files))
	for i, file := range attr.Files {
		files[i] = int(file)
	}
	_, err := s.request("ready", fields, files, time.Now().Add(becomesWithin))
	return err
}

func (s *Spare) enter(group *groups.Group) error {
	if !s.lives() { // its process id may belong to another process
		return errGone
	}
	if err := group.Adopt(s.pid); err != nil {
		return err
	}
	// If the child lives after the move, its id was its own during the move.
	if !s.lives() {
		return errGone
	}
	s.moved = true
	return nil
}

// lives reports whether the child hasn't been reaped. Signal 0 is never delivered.
func (s *Spare) lives() bool { return unix.PidfdSendSignal(s.pidfd, 0, nil, 0) == nil }

// Go checks that the child has all attributes of the command, and lets it continue. It is a
// [launch.Func] that ignores the program. The caller must ensure that no child is reaped meanwhile.
// After an error no instruction of the command has run.
func (s *Spare) Go(_ string, _ []string, attr *launch.Attr) (pid int, err error) {
	is, err := read(s.pid)
	if err != nil {
		return 0, errGone
	}
	mine, err := read(unix.Getpid())
	if err != nil {
		return 0, err
	}
	if err := check(mine, is, s.pid, attr.Sys.Credential); err != nil {
		return 0, fmt.Errorf("a child of the zygote has %w", err)
	}
	return s.pid, s.send([]string{"go"}, nil, time.Now().Add(becomesWithin)) // the program must not run earlier
}

// End kills the child and waits until it has ended: a cold start may need its terminal, and must
// not be charged for it.
func (s *Spare) End() {
	if s.pidfd >= 0 {
		_ = unix.PidfdSendSignal(s.pidfd, unix.SIGKILL, nil, 0)
		for until := time.Now().Add(endsWithin); time.Now().Before(until); {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(s.pidfd), Events: unix.POLLIN}}, int(time.Until(until).Milliseconds())+1)
			if n > 0 || err != nil && err != unix.EINTR {
				break
			}
		}
		s.unreaped(func() { _ = unix.Waitid(unix.P_PIDFD, s.pidfd, nil, unix.WEXITED|unix.WNOHANG, nil) })
	}
	s.Close()
}

// Close closes the link to the child. A child that hasn't become a command ends then.
func (s *Spare) Close() {
	s.close()
	if s.pidfd >= 0 {
		_ = unix.Close(s.pidfd)
	}
}
