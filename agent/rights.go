package agent

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// mostFiles is how many descriptors a request can carry: those of a cell.
const mostFiles = 4

// A RequestReader reads the beginning of a stream, and takes the descriptors that come with it (SCM_RIGHTS). It is
// for one goroutine.
type RequestReader struct {
	Conn  net.Conn
	files []*os.File
	read  bool // the request was read: later descriptors are refused
}

// Read implements io.Reader.
func (r *RequestReader) Read(p []byte) (int, error) {
	conn, ok := r.Conn.(*net.UnixConn)
	if r.read || !ok {
		return r.Conn.Read(p) // the kernel drops descriptors
	}
	var control [64]byte // CMSG_SPACE of mostFiles descriptors; the kernel drops those that don't fit
	n, size, _, _, err := conn.ReadMsgUnix(p, control[:unix.CmsgSpace(4*mostFiles)])
	if size > 0 {
		messages, parseErr := unix.ParseSocketControlMessage(control[:size])
		for i := range messages {
			fds, _ := unix.ParseUnixRights(&messages[i])
			for _, fd := range fds {
				_ = unix.SetNonblock(fd, true) // so that Go's poller waits for it, not a thread
				r.files = append(r.files, os.NewFile(uintptr(fd), "cell"))
			}
		}
		if err == nil {
			err = parseErr
		}
	}
	return n, err
}

// Files returns the descriptors that came with the request, and belong to the caller now. Call it once, after the
// request was read.
func (r *RequestReader) Files() []*os.File {
	files := r.files
	r.files, r.read = nil, true
	return files
}

// writeWithFiles writes a whole frame, whose first bytes carry files.
func writeWithFiles(conn net.Conn, frame []byte, files []*os.File) error {
	if len(files) == 0 {
		return writeFrame(conn, frame)
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return &Error{Code: ErrInternal, Message: "a cell's descriptors can be sent only to an agent on this machine"}
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	n, _, err := unixConn.WriteMsgUnix(frame[:1], unix.UnixRights(fds...), nil)
	if err != nil {
		return err
	}
	return writeFrame(conn, frame[n:])
}
