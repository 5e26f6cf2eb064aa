package main

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// sendSegments sends up to so many segments of one byte on each of some connections that
// nobody accepts, one on each in turn: the kernel doesn't join what was answered in between.
func sendSegments(connections, segments int) {
	listener, at, err := bound(unix.SOCK_STREAM)
	if err == nil {
		_ = unix.SetsockoptInt(listener, unix.SOL_SOCKET, unix.SO_RCVBUF, bufferSize) // which they inherit
		err = unix.Listen(listener, connections)
	}
	all := make([]int, connections)
	for i := range all {
		if err == nil {
			all[i], err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		}
		if err == nil {
			err = unix.Connect(all[i], at)
		}
		if err == nil {
			err = unix.SetsockoptInt(all[i], unix.SOL_TCP, unix.TCP_NODELAY, 1)
		}
	}
	if err != nil {
		say("sent nothing", result(err))
		return
	}
	for range segments {
		for _, fd := range all {
			_, _ = unix.SendmsgN(fd, []byte{0}, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		}
	}
	say("sent", strconv.Itoa(segments), "on each")
	hold()
}
