package maker

import (
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A channel is the maker's side of the socket that leads a first process.
type channel struct{ fd int }

// newChannel returns both sides. The process's is one that no other descriptor of it is above.
func newChannel() (c channel, its *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return channel{}, nil, err
	}
	timeout := unix.NsecToTimeval(int64(firstWithin / time.Nanosecond))
	high, err := unix.FcntlInt(uintptr(pair[1]), unix.F_DUPFD_CLOEXEC, lowestChannel)
	_ = unix.Close(pair[1])
	err = errors.Join(err, unix.SetsockoptTimeval(pair[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
		unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1))
	if err != nil {
		_ = unix.Close(pair[0])
		return channel{}, nil, fmt.Errorf("a socket to the first process: %w", err)
	}
	return channel{pair[0]}, os.NewFile(uintptr(high), "channel"), nil
}

func (c channel) close() { _ = unix.Close(c.fd) }

func (c channel) say(word string) error {
	if err := unix.Send(c.fd, []byte(word), unix.MSG_NOSIGNAL); err != nil {
		return fmt.Errorf("the first process ended: %w", err)
	}
	return nil
}

// wordNothing is heard when the process has closed the channel: it became the agent, or ended.
const wordNothing = ""

// hear returns nil where the process says word, and else what it reports.
func (c channel) hear(word string) error {
	_, err := c.receive(word)
	return err
}

// meet waits for the process's first word, and returns its id.
func (c channel) meet() (pid int, err error) {
	from, err := c.receive(wordHere)
	if err != nil {
		return 0, err
	}
	messages, err := unix.ParseSocketControlMessage(from)
	if err != nil {
		return 0, err
	}
	for _, m := range messages {
		if credentials, err := unix.ParseUnixCredentials(&m); err == nil && credentials.Pid > 1 {
			return int(credentials.Pid), nil
		}
	}
	return 0, errors.New("the kernel doesn't say which process the first one is")
}

func (c channel) receive(word string) (control []byte, err error) {
	var failed failure
	packet := make([]byte, unsafe.Sizeof(failed))
	control = make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	for {
		n, controlN, _, _, err := unix.Recvmsg(c.fd, packet, control, 0)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return nil, fmt.Errorf("the first process wasn't ready after %s", firstWithin)
		case err == unix.ECONNRESET:
			n = 0
		case err != nil:
			return nil, fmt.Errorf("the first process: %w", err)
		}
		if n == len(packet) {
			copy(unsafe.Slice((*byte)(unsafe.Pointer(&failed)), len(packet)), packet)
			return nil, failed
		}
		if said := string(packet[:max(n, 0)]); said != word {
			return nil, fmt.Errorf("the first process ended, or said %q instead of %q", said, word)
		}
		return control[:controlN], nil
	}
}
