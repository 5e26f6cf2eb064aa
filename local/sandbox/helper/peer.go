package helper

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

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
