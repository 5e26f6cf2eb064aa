package main

import (
	"cmp"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// connect tries to reach an address, for at most two seconds.
func connect(network, address string) {
	conn, err := net.DialTimeout(network, address, 2*time.Second)
	if err == nil && strings.HasPrefix(network, "udp") {
		_, err = conn.Write([]byte("attack"))
	}
	if err == nil {
		_ = conn.Close()
	}
	say(network, address, result(err))
}

// object creates a System V object that any user may use and that outlives the process, or looks for one.
func object(kind string, get, key, size uintptr, how string) {
	flags := uintptr(0o666)
	if how == "make" {
		flags |= unix.IPC_CREAT
	}
	say(kind, result(raw(get, key, size, flags)()))
}

func descriptors() {
	links, _ := filepath.Glob("/proc/self/fd/*")
	var found []string
	for _, link := range links {
		fd, _ := strconv.Atoi(filepath.Base(link))
		target, err := os.Readlink(link)
		if strings.HasPrefix(target, "/sys/fs/cgroup/") {
			continue // opened by Go's runtime to read the CPU limit
		}
		if fd > 2 && err == nil && !strings.HasPrefix(target, "anon_inode:[event") && !strings.HasPrefix(target, "/proc/") {
			found = append(found, target)
		}
	}
	slices.Sort(found)
	say("inherited", strconv.Itoa(len(found)), strings.Join(found, " "))
}

// swap repeatedly exchanges a path with two others, for the given milliseconds, so that it is
// sometimes a directory and sometimes a link.
func swap(path, one, other string, milliseconds int) {
	say("swapping")
	end := time.Now().Add(time.Duration(milliseconds) * time.Millisecond)
	times := 0
	for time.Now().Before(end) {
		for _, target := range []string{one, other} {
			_ = unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, target, unix.RENAME_EXCHANGE)
			times++
		}
	}
	say("swapped", strconv.Itoa(times), "times")
}

// chrootEscape is the classic escape: chroot into a subdirectory, then go up from there.
func chrootEscape() {
	if err := cmp.Or(unix.Mkdir("/workspace/jail", 0o755), unix.Chroot("/workspace/jail")); err != nil {
		say("chroot", result(err))
		return
	}
	for range 64 {
		_ = unix.Chdir("..")
	}
	say("chroot", result(unix.Chroot(".")))
}

// clocks prints whether the clocks since boot show more than the given seconds, which only the
// machine's own clocks do.
func clocks(machine int) {
	var monotonic, boot unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &monotonic)
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot)
	age := "young"
	if max(monotonic.Sec, boot.Sec) >= int64(machine) {
		age = "old"
	}
	say("the machine is", age+",", strconv.FormatInt(max(monotonic.Sec, boot.Sec), 10), "s")
}
