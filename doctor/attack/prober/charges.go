package main

import (
	"errors"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// charge uses kernel memory with many objects of one kind.
func charge(kind string, most int) {
	var take func(n int) error
	switch kind {
	case "locks":
		const inOne = 500 // locks per file: the kernel searches all of them for each new one
		var file int
		take = func(n int) (err error) {
			if n%inOne == 0 {
				if file, err = unix.Open("/tmp/lock"+strconv.Itoa(n), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600); err != nil {
					return err
				}
			}
			return unix.FcntlFlock(uintptr(file), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: int64(2 * (inOne - n%inOne)), Len: 1})
		}
	case "connections": // never accepted
		var at unix.Sockaddr
		take = func(n int) (err error) {
			if n%4000 == 0 {
				if at, err = listening(); err != nil {
					return err
				}
			}
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				err = errors.Join(unix.Connect(fd, at), unix.Close(fd))
			}
			return err
		}
	case "messages":
		text := make([]byte, 8+8192)
		text[0] = 1
		queue := uintptr(0)
		take = func(n int) error {
			if n%2 == 0 { // 16 KiB in each queue
				id, _, errno := unix.RawSyscall(unix.SYS_MSGGET, 0, unix.IPC_CREAT|0o600, 0)
				if errno != 0 {
					return errno
				}
				queue = id
			}
			return raw(unix.SYS_MSGSND, queue, uintptr(unsafe.Pointer(&text[0])), 8192, unix.IPC_NOWAIT)()
		}
	case "semaphores":
		semaphores := raw(unix.SYS_SEMGET, 0, 8000, unix.IPC_CREAT|0o600)
		take = func(int) error { return semaphores() }
	case "filters": // packet filters, which need no capability
		take = func(int) error { return attachFilter() }
	default:
		say(usage)
		return
	}
	n, err := repeat(most, take)
	if err == nil && (kind == "locks" || kind == "connections") {
		say("made", strconv.Itoa(n), "held")
		hold() // until the agent ends it
		return
	}
	say("made", strconv.Itoa(n), result(err))
}

func listening() (unix.Sockaddr, error) {
	fd, at, err := bound(unix.SOCK_STREAM | unix.SOCK_CLOEXEC)
	if err == nil {
		err = unix.Listen(fd, 1<<16)
	}
	return at, err
}
