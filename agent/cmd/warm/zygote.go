package warm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/cmd/groups"
)

// errZygote says that a zygote has ended, or doesn't do what it should.
var errZygote = errors.New("the zygote failed")

// answersWithin is how long a zygote, or its child, may take for one step.
const answersWithin = 5 * time.Second

// maxMessage bounds a message of a zygote, whose modules are the image's.
const maxMessage = 1 << 20

// A zygote is one process. One goroutine at a time uses it.
type zygote struct {
	control int // the agent's end of its socket
	pid     int
	group   *groups.Group // that it is in, of version 1; nil: the shared one
	loaded
}

// loaded is what a zygote has.
type loaded struct {
	version string          // of the interpreter: "3.11"
	memory  int64           // bytes that no file backs
	modules map[string]bool // the packages of all that are loaded
}

func (z *zygote) warmed() agent.Warmed { return agent.Warmed{Version: z.version, Memory: z.memory} }

// load has it load modules, and returns when it has.
func (z *zygote) load(modules []string) error {
	if err := z.send([]string{strings.Join(modules, "\x00")}, nil, loadsWithin); err != nil {
		return err
	}
	answer, err := z.receive(loadsWithin)
	switch {
	case err != nil:
		return err
	case answer[0] == "failed" && len(answer) == 3:
		return &agent.Error{Code: agent.ErrInvalid, Field: "modules", Path: answer[1], Message: "can't be loaded: " + answer[2]}
	case answer[0] != "ready" || len(answer) < 4:
		return errZygote
	}
	z.version = answer[1]
	z.memory, _ = strconv.ParseInt(answer[3], 10, 64)
	z.modules = map[string]bool{}
	for _, name := range answer[4:] {
		z.modules[name] = true
	}
	return nil
}

// split forks another zygote into a group.
func (z *zygote) split(group *groups.Group) (*zygote, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	other := &zygote{control: fds[0], group: group, loaded: z.loaded}
	other.pid, err = z.fork([]string{"zygote"}, []int{fds[1]})
	_ = unix.Close(fds[1])
	if err != nil {
		other.close()
		return nil, err
	}
	if err = group.Adopt(other.pid); err == nil {
		if _, err = unix.Write(other.control, []byte("m")); err == nil {
			_, err = other.receive(answersWithin)
		}
	}
	if err != nil {
		other.kill()
		return nil, fmt.Errorf("a zygote in the group %s: %w", group.Name(), err)
	}
	group.Keep(other.pid)
	return other, nil
}

// start forks a child, has it become a command, checks that it is one, and lets it go.
func (z *zygote) start(c Command, argv []string, attr *syscall.ProcAttr, limits [4]int64, group *groups.Group, move bool) (int, error) {
	link, theirs, err := newLink()
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(link) }()
	who := attr.Sys.Credential
	fields := []string{"run", flag(move), attr.Dir, number(int64(who.Uid)), number(int64(who.Groups[1])), flag(attr.Sys.Setctty)}
	for _, limit := range limits {
		fields = append(fields, number(limit))
	}
	fields = append(fields, c.form, c.file, number(int64(len(argv))))
	fields = append(append(fields, argv...), attr.Env...)
	files := []int{theirs}
	for i := len(attr.Files) - 1; i >= 0; i-- {
		files = append([]int{int(attr.Files[i])}, files...)
	}
	pid, err := z.fork(fields, files)
	_ = unix.Close(theirs)
	if err != nil {
		return 0, err
	}
	if err := release(link, pid, who, group, move); err != nil {
		_ = unix.Kill(pid, unix.SIGKILL) // it isn't reaped before this returns
		return 0, err
	}
	return pid, nil
}

// release takes a child through its steps.
func release(link, pid int, who *syscall.Credential, group *groups.Group, move bool) error {
	if move {
		if err := group.Adopt(pid); err != nil {
			return fmt.Errorf("join the group of the command: %w", err)
		}
		if _, err := unix.Write(link, []byte("m")); err != nil {
			return err
		}
	}
	var buf [256]byte
	n, err := unix.Read(link, buf[:])
	for err == unix.EINTR { // the kernel restarts no read that has a time limit
		n, err = unix.Read(link, buf[:])
	}
	switch {
	case err != nil:
		return fmt.Errorf("its child: %w", err)
	case n != 1 || buf[0] != 'r':
		return fmt.Errorf("its child: %q", buf[:max(n, 0)])
	}
	if err := check(pid, who); err != nil {
		return err
	}
	_, err = unix.Write(link, []byte("g"))
	return err
}

// newLink makes what a child and the agent speak over.
func newLink() (ours, theirs int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, -1, err
	}
	timeout := unix.NsecToTimeval(int64(answersWithin))
	_ = unix.SetsockoptTimeval(fds[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout)
	return fds[0], fds[1], nil
}

// fork asks for a child, and returns its number.
func (z *zygote) fork(fields []string, files []int) (int, error) {
	if err := z.send(fields, files, answersWithin); err != nil {
		return 0, err
	}
	answer, err := z.receive(answersWithin)
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(answer[0])
	switch {
	case err != nil:
		return 0, errZygote
	case pid < 0:
		return 0, syscall.Errno(-pid)
	}
	return pid, nil
}

// send sends a message, and descriptors with its beginning.
func (z *zygote) send(fields []string, files []int, within time.Duration) error {
	timeout := unix.NsecToTimeval(int64(within))
	_ = unix.SetsockoptTimeval(z.control, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout)
	message := make([]byte, 4)
	message = append(message, strings.Join(fields, "\x00")...)
	binary.BigEndian.PutUint32(message, uint32(len(message)-4))
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	for len(message) > 0 {
		n, err := unix.SendmsgN(z.control, message, rights, nil, unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errZygote, err)
		}
		message, rights = message[n:], nil
	}
	return nil
}

// receive reads a message, of at least one field.
func (z *zygote) receive(within time.Duration) ([]string, error) {
	timeout := unix.NsecToTimeval(int64(within))
	_ = unix.SetsockoptTimeval(z.control, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout)
	var head [4]byte
	if err := z.read(head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxMessage {
		return nil, errZygote
	}
	body := make([]byte, size)
	if err := z.read(body); err != nil {
		return nil, err
	}
	return strings.Split(string(bytes.ToValidUTF8(body, []byte("�"))), "\x00"), nil
}

func (z *zygote) read(b []byte) error {
	for len(b) > 0 {
		n, err := unix.Read(z.control, b)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return fmt.Errorf("%w: %w", errZygote, err)
		case n == 0:
			return errZygote
		default:
			b = b[n:]
		}
	}
	return nil
}

func (z *zygote) close() { _ = unix.Close(z.control) }

// kill ends it. It may have ended: then its number may be another's, whose mark tells.
func (z *zygote) kill() {
	if z.group != nil {
		z.group.Keep(0)
	}
	z.close() // which it ends by
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func number(n int64) string { return strconv.FormatInt(n, 10) }
