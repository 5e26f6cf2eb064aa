package groups

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/proc"
)

// mostUnaccepted is how many bytes the unaccepted connections of a runner may take.
const mostUnaccepted = 16 << 20

// connectionBytes is the size of a connection without the bytes that were sent on it.
const connectionBytes = 2500

// Connections are the TCP sockets of a network namespace that is one runner's alone. The kernel
// reports by sock_diag(7) how much memory each takes. Its lists in /proc have only the bytes that
// were sent, although for a segment of one byte the kernel keeps about 800 more. The methods are safe
// for concurrent use. Nil Connections are for a shared network: they aren't measured.
type Connections struct {
	mu    sync.Mutex // guards the fields below; held from a request to the end of its answer
	diag  int        // netlink socket; -1 if the kernel has no sock_diag
	asked uint32     // number of requests

	lists [2]*proc.File // of IPv4 and IPv6, if sock_diag doesn't work
}

// OpenConnections returns the connections of the agent's network. Its files stay open. Call it
// before the agent is confined, because the filter refuses such a socket.
func OpenConnections() (*Connections, error) {
	c := &Connections{diag: -1}
	for i, protocol := range []string{"tcp", "tcp6"} {
		var err error
		if c.lists[i], err = proc.Open("/proc/self/net/" + protocol); err != nil {
			return nil, err
		}
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_SOCK_DIAG)
	switch err {
	case nil:
		c.diag = fd
	case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM: // the kernel may support it, but lacks resources
		return nil, os.NewSyscallError("sock_diag", err)
	}
	return c, nil
}

// Excessive reports whether unaccepted connections take too much memory, or whether there are more
// sockets than are read.
func (c *Connections) Excessive() (bool, error) {
	if c == nil {
		return false, nil
	}
	t, err := c.query()
	if err != nil {
		t, err = c.read()
	}
	return t.size > mostUnaccepted || t.sockets > proc.MaxLines, err
}

type tally struct {
	sockets int
	size    int64 // bytes of the unaccepted ones among the first [proc.MaxLines]
}

func (t *tally) add(size int64) {
	if t.sockets++; t.sockets <= proc.MaxLines {
		t.size += size
	}
}

func (c *Connections) read() (t tally, err error) {
	for _, l := range c.lists {
		all, err := l.EachLine(func(line []byte) { t.add(unacceptedSize(line)) })
		if err != nil {
			return t, err
		}
		if !all {
			t.sockets = proc.MaxLines + 1
		}
	}
	return t, nil
}

// unacceptedSize returns the bytes of the unaccepted connection in a line of /proc/net/tcp, and 0
// for other sockets (proc_pid_net(5)): "0: 0100007F:1F90 0100007F:8A2C 08 00000000:00000400
// 00:00000000 00000000 0 0 0 …".
func unacceptedSize(line []byte) int64 {
	const state, queues, inode = 3, 4, 9
	fields := bytes.Fields(line)
	if len(fields) <= inode || string(fields[inode]) != "0" {
		return 0
	}
	if s, err := strconv.ParseUint(string(fields[state]), 16, 8); err != nil || small(byte(s)) {
		return 0
	}
	_, received, _ := bytes.Cut(fields[queues], []byte(":"))
	n, _ := strconv.ParseInt(string(received), 16, 64)
	return connectionBytes + n
}

// small reports whether a socket in this state holds no sent bytes, so that it takes at most 300
// bytes. The network's setting tcp_max_tw_buckets bounds those in TIME_WAIT. [proc.MaxLines] bounds
// all of them.
func small(state byte) bool {
	return state == unix.BPF_TCP_TIME_WAIT || state == unix.BPF_TCP_SYN_RECV
}

// Constants of sock_diag (linux/inet_diag.h, linux/sock_diag.h).
const (
	diagMemory   = 7         // INET_DIAG_SKMEMINFO: numbers of 4 bytes each
	diagStates   = 1<<13 - 1 // all states of a connection
	diagReceived = 0         // SK_MEMINFO_RMEM_ALLOC: memory of the received data
	diagBacklog  = 7         // SK_MEMINFO_BACKLOG: memory of data that will be received
	diagNumbers  = 8         // minimum number of values
)

// Offsets in struct inet_diag_msg.
const (
	diagState = 1
	diagQueue = 56 // sent bytes that wait
	diagInode = 68
	diagSize  = 72
)

// errDiag says that the kernel's answer isn't understood.
var errDiag = errors.New("sock_diag: malformed answer")

func (c *Connections) query() (t tally, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		if err := c.queryFamily(family, func(socket []byte) { t.add(unacceptedMemory(socket)) }); err != nil {
			return t, err
		}
	}
	return t, nil
}

// queryFamily calls each with the sockets of a family. It reads the answer to its end, because the
// kernel accepts no other request before.
func (c *Connections) queryFamily(family byte, each func(socket []byte)) error {
	c.asked++
	var question [unix.NLMSG_HDRLEN + 56]byte // struct inet_diag_req_v2
	binary.NativeEndian.PutUint32(question[0:], uint32(len(question)))
	binary.NativeEndian.PutUint16(question[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(question[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	binary.NativeEndian.PutUint32(question[8:], c.asked)
	request := question[unix.NLMSG_HDRLEN:]
	request[0], request[1], request[2] = family, unix.IPPROTO_TCP, 1<<(diagMemory-1)
	binary.NativeEndian.PutUint32(request[4:], diagStates)
	if _, err := unix.Write(c.diag, question[:]); err != nil {
		return err
	}
	var buf [8 << 10]byte // the kernel prepares one part of the answer at a time
	for {
		n, err := unix.Read(c.diag, buf[:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if done, err := eachSocket(buf[:n], c.asked, each); done || err != nil {
			return err
		}
	}
}

// eachSocket calls each with the sockets in one part of the answer to a request. Done reports
// whether it is the last part.
func eachSocket(part []byte, question uint32, each func(socket []byte)) (done bool, err error) {
	for len(part) > 0 {
		if len(part) < unix.NLMSG_HDRLEN {
			return false, errDiag
		}
		length := int(binary.NativeEndian.Uint32(part))
		if length < unix.NLMSG_HDRLEN || length > len(part) {
			return false, errDiag
		}
		kind, sequence, message := binary.NativeEndian.Uint16(part[4:]), binary.NativeEndian.Uint32(part[8:]), part[unix.NLMSG_HDRLEN:length]
		part = part[min((length+3)&^3, len(part)):]
		switch {
		case sequence != question: // the rest of an earlier answer that couldn't be read
		case kind == unix.NLMSG_DONE:
			return true, nil
		case kind == unix.NLMSG_ERROR && len(message) >= 4:
			return false, unix.Errno(-int32(binary.NativeEndian.Uint32(message)))
		case kind == unix.SOCK_DIAG_BY_FAMILY && len(message) >= diagSize:
			each(message)
		default:
			return false, errDiag
		}
	}
	return false, nil
}

// unacceptedMemory returns the memory of an unaccepted socket (struct inet_diag_msg and attributes)
// in bytes, and 0 for others.
func unacceptedMemory(socket []byte) int64 {
	if binary.NativeEndian.Uint32(socket[diagInode:]) != 0 || small(socket[diagState]) {
		return 0
	}
	received := int64(binary.NativeEndian.Uint32(socket[diagQueue:]))
	for rest := socket[diagSize:]; len(rest) >= unix.SizeofRtAttr; {
		length, kind := int(binary.NativeEndian.Uint16(rest)), binary.NativeEndian.Uint16(rest[2:])
		if length < unix.SizeofRtAttr || length > len(rest) {
			break
		}
		if memory := rest[unix.SizeofRtAttr:length]; kind == diagMemory && len(memory) >= 4*diagNumbers {
			received = int64(binary.NativeEndian.Uint32(memory[4*diagReceived:])) + int64(binary.NativeEndian.Uint32(memory[4*diagBacklog:]))
		}
		rest = rest[min((length+3)&^3, len(rest)):]
	}
	return connectionBytes + received
}
