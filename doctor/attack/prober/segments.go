package main

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// smallHeld is how many MiB small segments take at least if the agent doesn't end them: twice
// what it lets them have. Some kernels join them, so that they take less by themselves.
const smallHeld = 32

// sendSegments sends segments of one byte for so many seconds, on some connections that
// nobody accepts, one on each in turn: few kernels join what was answered in between. Only the
// memory of all of the machine's connections can be seen, so at smallHeld it waits, and sends more
// when others gave some back. It says how much is held, and holds smallHeld of it.
func sendSegments(connections, seconds int) {
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
	before := connectionMemory()
	held := 0
	for began := time.Now(); time.Since(began) < time.Duration(seconds)*time.Second; {
		if held = connectionMemory() - before; held >= smallHeld {
			time.Sleep(10 * time.Millisecond) //nolint:forbidigo // what of it is another's may go
			continue
		}
		for _, fd := range all {
			_, _ = unix.SendmsgN(fd, []byte{0}, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		}
	}
	say("holds", strconv.Itoa(max(held, 0)), "MiB")
	if held >= smallHeld {
		hold() // the agent ends it
	}
}

// connectionMemory is how many MiB the buffers of all of the machine's connections of TCP
// take, as any network of it says.
func connectionMemory() int {
	text, _ := os.ReadFile("/proc/self/net/sockstat")
	_, after, _ := strings.Cut(string(text), "\nTCP: ")
	line, _, _ := strings.Cut(after, "\n")
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return 0
	}
	pages, _ := strconv.Atoi(fields[len(fields)-1]) // "inuse 5 … mem 2"
	return pages * os.Getpagesize() >> 20
}
