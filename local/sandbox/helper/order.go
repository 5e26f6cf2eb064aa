package helper

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Maker is the first argument of a helper that makes many sandboxes for the process that started
// it. Requests arrive on descriptor 3; its Config is the second argument.
const Maker = "maker"

// An Order is a request to a maker. With it come, as descriptors, the socket for the answer, then
// those of the Request.
type Order struct {
	Request
	Parent string `json:"parent"` // the parent cgroup of the sandbox's
}

// ByMaker reports whether a maker can serve the request; other requests need a helper of their own.
func (q Request) ByMaker() bool {
	return q.Command == Create && q.Runtime == "" || q.Command == Cell || q.Command == EndCell
}

// ParseOrder parses one order, and checks it.
func ParseOrder(text []byte) (*Order, error) {
	var o Order
	if err := decode(bytes.NewReader(text), &o); err != nil {
		return nil, fmt.Errorf("read order: %w", err)
	}
	if o.Protocol != Protocol {
		return nil, fmt.Errorf("this rockpool-sandbox has protocol version %d, and the request has version %d", Protocol, o.Protocol)
	}
	if !ValidParent(o.Parent) {
		return nil, fmt.Errorf("the cgroup parent %q must be /rockpool or below it", o.Parent)
	}
	return &o, o.Check()
}

// Receive reads one packet and its descriptors, at most so many, which the caller closes. It returns
// io.EOF when the other side has closed the connection.
func Receive(conn *net.UnixConn, most int) (packet []byte, files []*os.File, err error) {
	packet = make([]byte, MaxMessage)
	rights := make([]byte, unix.CmsgSpace(most*4))
	n, rightsN, flags, _, err := conn.ReadMsgUnix(packet, rights)
	if err != nil {
		return nil, nil, err
	}
	files, err = descriptors(rights[:rightsN])
	switch {
	case err == nil && n == 0 && len(files) == 0:
		return nil, nil, io.EOF
	case err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = fmt.Errorf("a packet is larger than %d bytes, or has more than %d descriptors", MaxMessage, most)
	}
	if err != nil {
		CloseAll(files)
		return nil, nil, err
	}
	return packet[:n], files, nil
}

// CloseAll closes files that were used or are refused.
func CloseAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// descriptors returns the descriptors of a control message, close-on-exec. It returns an error if
// the message contains anything else; the caller closes the descriptors even then.
func descriptors(rights []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		fds, parseErr := unix.ParseUnixRights(&m)
		if parseErr != nil {
			err = errors.Join(err, parseErr)
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return files, err
}

// CheckListener returns an error unless a descriptor is a listening Unix stream socket. Nothing
// else is handed to a sandbox.
func CheckListener(fd int) error {
	for _, o := range []struct{ option, want int }{
		{unix.SO_DOMAIN, unix.AF_UNIX}, {unix.SO_TYPE, unix.SOCK_STREAM}, {unix.SO_ACCEPTCONN, 1},
	} {
		got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, o.option)
		if err != nil {
			return fmt.Errorf("the descriptor for the agent isn't a socket: %w", err)
		}
		if got != o.want {
			return errors.New("the descriptor for the agent isn't a listening Unix stream socket")
		}
	}
	return nil
}

// Peer returns the credentials of the process on the other side, as the kernel reports them: the
// one that connected, or the one that listens.
func Peer(conn *net.UnixConn) (peer *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return peer, errors.Join(err, failed)
}

// StartTime returns when a process started, in clock ticks since boot. A later process with the same id
// has another one.
func StartTime(pid int) (uint64, error) { return statField(pid, 22) }

// Parent returns the id of a process's parent.
func Parent(pid int) (uint64, error) { return statField(pid, 4) }

// statField returns a number of /proc/<pid>/stat, numbered as in proc_pid_stat(5).
func statField(pid, number int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the name, in parentheses, which can contain any character.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < number-2 {
		return 0, fmt.Errorf("process %d: unknown format of its stat file", pid)
	}
	return strconv.ParseUint(string(fields[number-3]), 10, 64)
}
