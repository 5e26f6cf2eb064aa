// The prober is the hostile program of the attack corpus: a small static program that is uploaded
// to a runner and does what a shell can't. It prints the results. Each of its bombs has its own
// maximum. With the machine's own rights it refuses to run: it would change the machine's network.
package main

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const usage = "usage: prober call NAME | COMMAND [ARGUMENT …]"

func main() {
	if outside() {
		say("the prober attacks what it runs in, so it refuses to run as root outside a sandbox")
		os.Exit(2)
	}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		say(usage)
		os.Exit(2)
	}
	commands[os.Args[1]](os.Args[2:])
}

// outside reports whether the prober has the machine's own rights: the initial user namespace, and a
// capability that no sandbox gives.
func outside() bool {
	ids, err := os.ReadFile("/proc/self/uid_map")
	if err != nil || strings.Join(strings.Fields(string(ids)), " ") != "0 0 4294967295" {
		return false // gVisor may show this map, too
	}
	var has [2]unix.CapUserData
	err = unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &has[0])
	return err == nil && has[0].Effective&(1<<unix.CAP_SYS_MODULE) != 0
}

var commands = map[string]func(args []string){
	"call":       tryCall,
	"fork":       func(a []string) { forkBomb(number(a, 0)) },
	"threads":    func(a []string) { threadBomb(number(a, 0)) },
	"memory":     func(a []string) { memoryBomb(number(a, 0)) },
	"map":        func(a []string) { mapBomb(a[0], number(a, 1)) },
	"files":      func(a []string) { fileBomb(a[0], number(a, 1)) },
	"fill":       func(a []string) { fill(a[0], number(a, 1)) },
	"sparse":     func(a []string) { sparse(a[0]) },
	"spin":       func(a []string) { spin(number(a, 0), number(a, 1), number(a, 2)) },
	"signals":    func(a []string) { signalBomb(number(a, 0)) },
	"connect":    func(a []string) { connect(a[0], a[1]) },
	"ask":        askAll,
	"send":       func(a []string) { send(a[0], a[1], number(a, 2)) },
	"from":       func(a []string) { askFrom(number(a, 0), a[1]) },
	"forge":      func(a []string) { forge(a[0], a[1], a[2]) },
	"lite":       func(a []string) { lite(a[0], a[1], number(a, 2)) },
	"flows":      func(a []string) { flows(a[0], number(a, 1)) },
	"rate":       func(a []string) { rate(a[0], a[1], number(a, 2)) },
	"serve":      func(a []string) { serve(a[0], number(a, 1)) },
	"scan":       func(a []string) { scan(a[0], number(a, 1), number(a, 2)) },
	"link":       func([]string) { reconfigure() },
	"shm":        func(a []string) { object("segment", unix.SYS_SHMGET, uintptr(number(a, 1)), 4096, a[0]) },
	"fds":        func([]string) { descriptors() },
	"daemon":     func(a []string) { daemon(a) },
	"fakeexec":   func([]string) { pretend() },
	"swap":       func(a []string) { swap(a[0], a[1], a[2], number(a, 3)) },
	"zombies":    func(a []string) { zombies(number(a, 0)) },
	"killall":    func([]string) { say("kill -1", result(unix.Kill(-1, unix.SIGKILL))) },
	"chroot":     func([]string) { chrootEscape() },
	"take":       take,
	"neighbours": func(a []string) { neighbours(number(a, 0)) },
	"all":        func(a []string) { openInAll(number(a, 0), number(a, 1)) },
	"buffers":    func(a []string) { fillBuffers(a[0], number(a, 1)) },
	"cores":      func([]string) { cores() },
	"sem":        func(a []string) { object("semaphore", unix.SYS_SEMGET, 0x726f636b, 1, a[0]) },
	"drop":       func([]string) { drop() },
	"disk":       func(a []string) { readDisk(number(a, 0), number(a, 1)) },
	"charge":     func(a []string) { charge(a[0], number(a, 1)) },
	"segments":   func(a []string) { sendSegments(number(a, 0), number(a, 1)) },
	"times":      func(a []string) { clocks(number(a, 0)) },
}

// say prints words as one line, with a single write.
func say(words ...string) {
	_, _ = os.Stdout.WriteString(strings.Join(words, " ") + "\n")
}

// result returns "done", or the name of the error.
func result(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return "done"
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// number returns an argument that must be a number of at least 0. Otherwise it prints the usage and
// exits with 2.
func number(args []string, at int) int {
	if at < len(args) {
		if n, err := strconv.Atoi(args[at]); err == nil && n >= 0 {
			return n
		}
	}
	say(usage)
	os.Exit(2)
	return 0
}
