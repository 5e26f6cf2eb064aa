package warm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

// errZygote says that a zygote, or its child, has ended, or doesn't do what it should.
var errZygote = errors.New("the zygote failed")

// answersWithin is how long a zygote may take to fork, and becomesWithin its child to become a command:
// meanwhile no ended process is waited for.
const (
	answersWithin = 5 * time.Second
	becomesWithin = 2 * time.Second
)

// maxMessage bounds a message of a zygote, whose modules are the image's.
const maxMessage = 1 << 20

// A link is the agent's end of the socket of a zygote, or of its child.
type link int

// newLink returns both ends.
func newLink() (ours link, theirs int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	return link(fds[0]), fds[1], err
}

func (l link) close() { _ = unix.Close(int(l)) }

// ask sends a message, and returns the rest of the answer, which must begin with this. An answer
// that begins with "failed" is an error of the one who answered.
func (l link) ask(want string, fields []string, files []int, within time.Duration) ([]string, error) {
	if err := l.send(fields, files, within); err != nil {
		return nil, err
	}
	return l.hear(want, within)
}

// hear waits for a message that begins with want, and returns the rest of it.
func (l link) hear(want string, within time.Duration) ([]string, error) {
	answer, err := l.receive(within)
	switch {
	case err != nil:
		return nil, err
	case answer[0] == "failed" && len(answer) > 1:
		return nil, &failure{answer[1:]}
	case answer[0] != want:
		return nil, fmt.Errorf("%w: %q instead of %q", errZygote, agent.Shorten(answer[0]), want)
	}
	return answer[1:], nil
}

// A failure is what the other end says why it can't do something.
type failure struct{ fields []string }

func (f *failure) Error() string { return strings.Join(f.fields, ": ") }

// send sends a message, and descriptors with its beginning.
func (l link) send(fields []string, files []int, within time.Duration) error {
	timeout := unix.NsecToTimeval(int64(within))
	_ = unix.SetsockoptTimeval(int(l), unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout)
	body := strings.Join(fields, "\x00")
	message := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	for len(message) > 0 {
		n, err := unix.SendmsgN(int(l), message, rights, nil, unix.MSG_NOSIGNAL)
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
func (l link) receive(within time.Duration) ([]string, error) {
	timeout := unix.NsecToTimeval(int64(within))
	_ = unix.SetsockoptTimeval(int(l), unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout)
	var head [4]byte
	if err := l.read(head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxMessage {
		return nil, errZygote
	}
	body := make([]byte, size)
	if err := l.read(body); err != nil {
		return nil, err
	}
	return strings.Split(string(bytes.ToValidUTF8(body, []byte("�"))), "\x00"), nil
}

func (l link) read(b []byte) error {
	for len(b) > 0 {
		n, err := unix.Read(int(l), b)
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
