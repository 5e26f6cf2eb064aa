package confinement

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/proc"
)

// The kernel queues its answers on a netlink socket in memory that no control group counts: 416 KiB
// for each socket by default, and many MiB if net.core.rmem_max is higher. So the agent counts
// these sockets (seccomp_unotify(2)). Programs need them only for moments, to list interfaces and
// addresses.

// mostNetlink is the maximum number of netlink sockets of a runner's programs. Each of their
// threads may exceed it by one if all request a socket concurrently.
const mostNetlink = 16

// A notice is struct seccomp_notif of the kernel.
type notice struct {
	id   uint64
	pid  uint32
	_    uint32
	data [64]byte // struct seccomp_data
}

// A reply is struct seccomp_notif_resp of the kernel.
type reply struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// The requests of ioctl for a listener, with the sizes of notice and reply.
const (
	receiveNotice = 0xc0502100 // SECCOMP_IOCTL_NOTIF_RECV
	sendReply     = 0xc0182101 // SECCOMP_IOCTL_NOTIF_SEND
)

// countNetlink decides about each call that makes a netlink socket. It returns when the listener
// fails. The kernel then returns ENOSYS for such calls.
func countNetlink(listener int) {
	protocols, _ := proc.Open("/proc/self/net/protocols") // on an error every call is refused
	own, _ := netlinkSockets(protocols)                   // the agent's own: programs have none before this goroutine answers
	_ = unix.SetNonblock(listener, true)                  // so that Go's poller waits for it, not a thread
	file := os.NewFile(uintptr(listener), "netlink")
	defer func() { _ = file.Close() }()
	conn, err := file.SyscallConn()
	for err == nil {
		readErr := conn.Read(func(fd uintptr) bool {
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if ready, err := unix.Poll(poll, 0); ready == 0 || err == unix.EINTR {
				return false
			}
			err = answer(int(fd), protocols, own)
			return true
		})
		err = errors.Join(err, readErr)
	}
}

// answer decides about one call. Own sockets belong to the agent and don't count. It returns an
// error if the listener fails.
func answer(listener int, protocols *proc.File, own int) error {
	var n notice
	switch err := ioctl(listener, receiveNotice, unsafe.Pointer(&n)); err {
	case nil:
	case unix.EINTR, unix.ENOENT: // the caller was killed
		return nil
	default:
		return err
	}
	r := reply{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	if count, known := netlinkSockets(protocols); !known || count-own >= mostNetlink {
		r.flags, r.errno = 0, -int32(unix.ENOBUFS)
	}
	_ = ioctl(listener, sendReply, unsafe.Pointer(&r)) // an error means that the caller was killed
	return nil
}

func ioctl(fd int, request uintptr, argument unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}

// netlinkSockets returns the number of netlink sockets in this network namespace, if it is known.
func netlinkSockets(protocols *proc.File) (count int, known bool) {
	_, err := protocols.EachLine(func(row []byte) {
		if n, ok := socketsOf(row, "NETLINK"); ok {
			count, known = n, true
		}
	})
	return count, known && err == nil
}

// socketsOf returns the third column of a protocol's row in /proc/net/protocols.
func socketsOf(row []byte, protocol string) (count int, ok bool) {
	fields := bytes.Fields(row)
	if len(fields) < 3 || string(fields[0]) != protocol {
		return 0, false
	}
	count, err := strconv.Atoi(string(fields[2]))
	return count, err == nil
}
