package warm

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// check reads back what a child is: the zygote runs the image's modules, and isn't believed.
func check(pid int, who *syscall.Credential) error {
	mine, err := read(unix.Getpid(), make([]byte, statusBytes))
	if err != nil {
		return err
	}
	is, err := read(pid, make([]byte, statusBytes))
	if err != nil {
		return err
	}
	user, mark := strconv.Itoa(int(who.Uid)), strconv.Itoa(int(who.Groups[1]))
	all := user + "\t" + user + "\t" + user + "\t" + user
	const none = "0000000000000000"
	for name, want := range map[string]string{
		"Uid": all, "Gid": all, "Groups": user + " " + mark, "Threads": "1", "TracerPid": "0", "PPid": strconv.Itoa(unix.Getpid()),
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
		"NoNewPrivs": string(mine["NoNewPrivs"]), "Seccomp": string(mine["Seccomp"]),
	} {
		if got := string(is[name]); got != want {
			return fmt.Errorf("a child of the zygote has %s %q, not %q", name, got, want)
		}
	}
	// From Linux 5.9 on. A command may have one more than the agent.
	filters, _ := strconv.Atoi(string(is["Seccomp_filters"]))
	if least, _ := strconv.Atoi(string(mine["Seccomp_filters"])); filters < least {
		return fmt.Errorf("a child of the zygote has %d filters, the agent %d", filters, least)
	}
	session, group := last(is["NSsid"]), last(is["NSpgid"])
	if of := strconv.Itoa(pid); session != of || group != of {
		return fmt.Errorf("a child of the zygote has the session %s and the process group %s, not its own", session, group)
	}
	return nil
}

// statusBytes is more than /proc/PID/status has.
const statusBytes = 4096

// read returns the fields of /proc/PID/status.
func read(pid int, buf []byte) (map[string][]byte, error) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/status", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "status", Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	n, err := unix.Read(fd, buf)
	if err != nil {
		return nil, err
	}
	fields := map[string][]byte{}
	for line := range bytes.Lines(buf[:n]) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		fields[string(name)] = bytes.TrimSpace(value)
	}
	return fields, nil
}

// last returns the last of the ids of a process, one for each PID namespace.
func last(value []byte) string {
	return string(value[bytes.LastIndexByte(value, '\t')+1:])
}
