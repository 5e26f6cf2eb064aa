package warm

import (
	"bytes"
	"fmt"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/proc"
)

// check compares a child's /proc/PID/status with the agent's and with the attributes that a command
// must have. It doesn't trust the zygote, which runs the image's modules.
func check(mine, is map[string][]byte, pid int, who *syscall.Credential) error {
	user, mark := strconv.Itoa(int(who.Uid)), strconv.Itoa(int(who.Groups[1]))
	all := user + "\t" + user + "\t" + user + "\t" + user
	const none = "0000000000000000"
	for name, want := range map[string]string{
		"Uid": all, "Gid": all, "Groups": user + " " + mark, "Threads": "1", "TracerPid": "0", "PPid": strconv.Itoa(unix.Getpid()),
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
		"NoNewPrivs": string(mine["NoNewPrivs"]), "Seccomp": string(mine["Seccomp"]),
	} {
		if got := string(is[name]); got != want {
			return fmt.Errorf("%s %q, expected %q", name, got, want)
		}
	}
	// Since Linux 5.9. A command may have one filter more than the agent.
	filters, _ := strconv.Atoi(string(is["Seccomp_filters"]))
	if least, _ := strconv.Atoi(string(mine["Seccomp_filters"])); filters < least {
		return fmt.Errorf("%d filters, expected at least %d", filters, least)
	}
	session, group := last(is["NSsid"]), last(is["NSpgid"])
	if of := strconv.Itoa(pid); session != of || group != of {
		return fmt.Errorf("the session %s and the process group %s, expected its own", session, group)
	}
	return nil
}

func read(pid int) (map[string][]byte, error) {
	text, err := proc.Read(pid, "status", make([]byte, 4096)) // more than it has
	return parse(text), err
}

func parse(text []byte) map[string][]byte {
	fields := map[string][]byte{}
	for line := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		fields[string(name)] = bytes.TrimSpace(value)
	}
	return fields
}

// last returns the innermost of a process's ids, of which it has one for each PID namespace.
func last(value []byte) string {
	return string(value[bytes.LastIndexByte(value, '\t')+1:])
}
