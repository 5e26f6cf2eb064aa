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

// errZygote says that a zygote or its child has ended, or violates their protocol.
var errZygote = errors.New("the interpreter, or its child, failed")

// errLate says that a zygote or its child didn't answer in time.
var errLate = fmt.Errorf("%w: it took too long", errZygote)

// maxMessage bounds a message of a zygote, in bytes. The zygote isn't trusted, since it runs the
// image's modules.
const maxMessage = 1 << 20

// A link is the agent's end of the socket to a zygote, or to a child of it.
type link int

func newLink() (ours link, theirs int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	return link(fds[0]), fds[1], err
}

func (l link) close() { _ = unix.Close(int(l)) }

// request sends a message and returns the fields of the answer after the first, which must be want. If
// the first is "failed", the error is a [*failure].
func (l link) request(want string, fields []string, files []int, until time.Time) ([]string, error) {
	if err := l.send(fields, files, until); err != nil {
		return nil, err
	}
	return l.hear(want, until)
}

// hear waits for a message whose first field is want, and returns the other fields.
func (l link) hear(want string, until time.Time) ([]string, error) {
	answer, err := l.receive(until)
	switch {
	case err != nil:
		return nil, err
	case answer[0] == "failed" && len(answer) > 1:
		return nil, &failure{answer[1:]}
	case answer[0] != want:
		return nil, fmt.Errorf("%w: it sent %q, expected %q", errZygote, agent.Shorten(answer[0]), want)
	}
	return answer[1:], nil
}

// A failure is an error that the other end reported.
type failure struct{ fields []string }

func (f *failure) Error() string { return strings.Join(f.fields, ": ") }

// send sends a message. Descriptors are sent with its first byte.
func (l link) send(fields []string, files []int, until time.Time) error {
	body := strings.Join(fields, "\x00")
	message := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	for len(message) > 0 {
		if err := l.limit(unix.SO_SNDTIMEO, until); err != nil {
			return err
		}
		n, err := unix.SendmsgN(int(l), message, rights, nil, unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		if err == unix.EAGAIN {
			return errLate
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errZygote, err)
		}
		message, rights = message[n:], nil
	}
	return nil
}

// receive reads a message of at least one field.
func (l link) receive(until time.Time) ([]string, error) {
	var head [4]byte
	if err := l.read(head[:], until); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxMessage {
		return nil, errZygote
	}
	body := make([]byte, size)
	if err := l.read(body, until); err != nil {
		return nil, err
	}
	return strings.Split(string(bytes.ToValidUTF8(body, []byte("�"))), "\x00"), nil
}

func (l link) read(b []byte, until time.Time) error {
	for len(b) > 0 {
		if err := l.limit(unix.SO_RCVTIMEO, until); err != nil {
			return err
		}
		n, err := unix.Read(int(l), b)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return errLate
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

// limit bounds the time of the next send or receive.
func (l link) limit(option int, until time.Time) error {
	left := time.Until(until)
	if left < time.Millisecond { // a timeout of 0 would mean none
		return errLate
	}
	timeout := unix.NsecToTimeval(int64(left))
	return unix.SetsockoptTimeval(int(l), unix.SOL_SOCKET, option, &timeout)
}
