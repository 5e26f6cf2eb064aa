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
func (q Request) ByMaker() bool { return q.Command == Create && q.Runtime == "" }

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
