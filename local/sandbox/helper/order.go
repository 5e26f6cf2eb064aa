package helper

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Maker is the helper's first argument where it makes many sandboxes, for the process that
// started it: requests come on descriptor 3, and its Config is the second argument.
const Maker = "maker"

// An Order is a request to a maker, by the process that started it. The socket that the
// answer goes to comes with it, and after that what a Request comes with.
type Order struct {
	Request
	Parent string `json:"parent"` // the group that the sandbox's group is in
}

// Made reports whether a maker makes the sandbox that is asked for: others are made by a
// helper of their own.
func (q Request) Made() bool { return q.Command == Create && q.Runtime == "" }

// ParseOrder returns the order that a text is, checked.
func ParseOrder(text []byte) (*Order, error) {
	var o Order
	if err := decode(bytes.NewReader(text), &o); err != nil {
		return nil, fmt.Errorf("read order: %w", err)
	}
	if o.Protocol != Protocol {
		return nil, fmt.Errorf("this rockpool-sandbox speaks version %d of its protocol, and was asked in version %d", Protocol, o.Protocol)
	}
	if !ValidParent(o.Parent) {
		return nil, fmt.Errorf("the cgroup parent %q isn't rockpool or below it", o.Parent)
	}
	return &o, o.Check()
}

// Receive reads one packet with its descriptors, which the caller closes. It returns io.EOF
// once the other side has closed the connection.
func Receive(conn *net.UnixConn) (packet []byte, files []*os.File, err error) {
	const most = 2 // descriptors
	packet = make([]byte, MaxMessage)
	rights := make([]byte, unix.CmsgSpace(most*4))
	n, rightsN, flags, _, err := conn.ReadMsgUnix(packet, rights)
	if err != nil {
		return nil, nil, err
	}
	files, err = Descriptors(rights[:rightsN])
	switch {
	case err == nil && n == 0 && len(files) == 0:
		return nil, nil, io.EOF
	case err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = fmt.Errorf("a packet has more than %d bytes, or more than %d descriptors", MaxMessage, most)
	}
	if err != nil {
		for _, f := range files {
			_ = f.Close()
		}
		return nil, nil, err
	}
	return packet[:n], files, nil
}

// Descriptors returns those that a control message has, and an error where it has anything
// else.
func Descriptors(rights []byte) (files []*os.File, err error) {
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
