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

// What the kernel answers on a netlink socket waits there in memory that no control
// group counts: 416 KiB of a socket by default, many MiB where net.core.rmem_max is
// higher. So the agent counts the sockets (seccomp_unotify(2)), which programs need to
// list interfaces and addresses, a moment each.

// mostNetlink is how many netlink sockets a runner's programs have. Each of their
// threads may pass it by one, where all ask at once.
const mostNetlink = 16

// A notice is struct seccomp_notif.
type notice struct {
	id   uint64
	pid  uint32
	_    uint32
	data [64]byte // struct seccomp_data
}

// A reply is struct seccomp_notif_resp.
type reply struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

const (
	receiveNotice = 0xc0502100 // SECCOMP_IOCTL_NOTIF_RECV
	sendReply     = 0xc0182101 // SECCOMP_IOCTL_NOTIF_SEND
)

// countNetlink answers the filter's listener about each call that would make a netlink socket.
// It returns if the listener fails; then such calls are ENOSYS.
func countNetlink(listener int) {
	protocols, _ := proc.Open("/proc/self/net/protocols") // without it every call is refused
	own, _ := netlinkSockets(protocols)                   // the agent's: programs make none before it answers here
	_ = unix.SetNonblock(listener, true)                  // so that no thread has to wait for it
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

// answer answers one call, where own sockets aren't those of programs. It returns an error if the
// listener fails.
func answer(listener int, protocols *proc.File, own int) error {
	var n notice
	switch err := ioctl(listener, receiveNotice, unsafe.Pointer(&n)); err {
	case nil:
	case unix.EINTR, unix.ENOENT: // the caller is gone
		return nil
	default:
		return err
	}
	r := reply{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	if count, known := netlinkSockets(protocols); !known || count-own >= mostNetlink {
		r.flags, r.errno = 0, -int32(unix.ENOBUFS)
	}
	_ = ioctl(listener, sendReply, unsafe.Pointer(&r)) // the caller may be gone
	return nil
}

func ioctl(fd int, request uintptr, argument unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}

// netlinkSockets returns how many there are in this network, if known.
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
