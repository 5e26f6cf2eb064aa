package main

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// smallHeld is the memory in MiB that small segments reach if the agent doesn't end them: twice
// what it allows. Kernels that merge segments may need less memory for them.
const smallHeld = 32

// sendSegments sends one-byte segments for the given seconds on connections that are never
// accepted. It uses the connections in turn, because few kernels merge segments that were
// acknowledged in between. Only the memory of all TCP connections of the machine is visible, so at
// smallHeld it waits, and sends more when other programs release memory. It prints how much is
// held; at smallHeld or more it keeps holding it.
func sendSegments(connections, seconds int) {
	listener, at, err := bound(unix.SOCK_STREAM)
	if err == nil {
		_ = unix.SetsockoptInt(listener, unix.SOL_SOCKET, unix.SO_RCVBUF, bufferSize) // accepted connections inherit it
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
			time.Sleep(10 * time.Millisecond) //nolint:forbidigo // another program may release its part
			continue
		}
		for _, fd := range all {
			_, _ = unix.SendmsgN(fd, []byte{0}, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		}
	}
	say("holds", strconv.Itoa(max(held, 0)), "MiB")
	if held >= smallHeld {
		hold() // until the agent ends it
	}
}

// connectionMemory returns the memory of all TCP connections of the machine in MiB. Every network
// namespace shows it.
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
