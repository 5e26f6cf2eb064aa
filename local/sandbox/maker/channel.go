package maker

import (
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A channel is the maker's end of the socket to a first process.
type channel struct{ fd int }

// newChannel returns both ends. The process's descriptor is above all others that it gets.
func newChannel() (c channel, its *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return channel{}, nil, err
	}
	timeout := unix.NsecToTimeval(int64(firstWithin / time.Nanosecond))
	high, err := unix.FcntlInt(uintptr(pair[1]), unix.F_DUPFD_CLOEXEC, lowestChannel)
	_ = unix.Close(pair[1])
	// SO_PASSCRED makes the kernel add the sender's process id to what it sends (unix(7)).
	err = errors.Join(err, unix.SetsockoptTimeval(pair[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
		unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1))
	if err != nil {
		_ = unix.Close(pair[0])
		return channel{}, nil, fmt.Errorf("make a socket to the first process: %w", err)
	}
	return channel{pair[0]}, os.NewFile(uintptr(high), "channel"), nil
}

func (c channel) close() { _ = unix.Close(c.fd) }

// send sends a word to the process. An error means that the process has ended.
func (c channel) send(word string) error {
	if err := unix.Send(c.fd, []byte(word), unix.MSG_NOSIGNAL); err != nil {
		return fmt.Errorf("the first process ended: %w", err)
	}
	return nil
}

// wordNothing is received when the process has closed the channel: it became the agent, or ended.
const wordNothing = ""

// expect waits for word. It returns an error if the process reports a failure, ends, or sends
// something else.
func (c channel) expect(word string) error {
	_, err := c.receive(word)
	return err
}

// meet waits for the process's first word, and returns its process id as the kernel reports it.
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
	return 0, errors.New("the kernel didn't report the first process's id")
}

// receive reads one packet, and returns its control message. It waits at most firstWithin.
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
			return nil, fmt.Errorf("the first process wasn't ready within %s", firstWithin)
		case err == unix.ECONNRESET:
			n = 0
		case err != nil:
			return nil, fmt.Errorf("read from the first process: %w", err)
		}
		// A word is one byte, so only a failure has this size.
		if n == len(packet) {
			copy(unsafe.Slice((*byte)(unsafe.Pointer(&failed)), len(packet)), packet)
			return nil, failed
		}
		if said := string(packet[:max(n, 0)]); said != word {
			return nil, fmt.Errorf("the first process ended, or sent %q instead of %q", said, word)
		}
		return control[:controlN], nil
	}
}
