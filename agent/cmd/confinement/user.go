package confinement

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// User is the user of commands, where the agent may choose it. Only [RunAs] changes it, before any
// command runs.
var User uint32 = 1000

// Group is the group of commands. It is set like User.
var Group uint32 = 1000

// ZygoteUser is the user and the group of interpreters that fork for commands (package warm).
// Commands run as other users, so they can't signal, trace or read such an interpreter.
const ZygoteUser = 59999

// RunAs makes commands run as the account that a container image names: a user's name or number
// and, after ":", a group's, as in Docker but without supplementary groups. So files of the image
// belong to that user. An account of root has no effect, since commands aren't root. The error is
// for a missing account, and for ids that the agent reserves.
func RunAs(account string) error {
	uid, gid, err := lookUp(account, ReadSmall("/etc/passwd"), ReadSmall("/etc/group"))
	if err == nil && uid != 0 {
		User, Group = uid, gid
	}
	return err
}

// ReadSmall reads up to 1 MiB of a regular file. In an image a path can be anything, for example a
// FIFO. It returns "" if it can't.
func ReadSmall(path string) string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	file := os.NewFile(uintptr(fd), path)
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	text, _ := io.ReadAll(io.LimitReader(file, 1<<20))
	return string(text)
}

// The range of the groups that mark executions (package proc), without lastMark.
const firstMark, lastMark = 60000, 60256

// lookUp returns an account's ids from the texts of /etc/passwd and /etc/group; 0, 0 is root.
func lookUp(account, passwd, group string) (uid, gid uint32, err error) {
	user, ofGroup, _ := strings.Cut(account, ":")
	uid, known := number(user)
	numeric := known
	for line := range strings.Lines(passwd) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) > 3 && (f[0] == user || numeric && f[2] == user) {
			id, ok := number(f[2])
			own, okGroup := number(f[3])
			if ok && okGroup {
				uid, gid, known = id, own, true
				break
			}
		}
	}
	if ofGroup != "" {
		var ok bool
		if gid, ok = number(ofGroup); !ok {
			gid, ok = groupNumber(group, ofGroup)
		}
		known = known && ok
	}
	switch {
	case !known:
		return 0, 0, fmt.Errorf("the image's user %q isn't in its /etc/passwd: commands run as user %d instead", account, User)
	case reserved(uid) || reserved(gid):
		return 0, 0, fmt.Errorf("the image's user %q is %d:%d, but the agent reserves %d to %d: commands run as user %d instead", account, uid, gid, ZygoteUser, lastMark-1, User)
	}
	return uid, gid, nil
}

// reserved reports whether the agent uses an id itself, so that no command may have it as its user
// or group.
func reserved(id uint32) bool { return id == ZygoteUser || id >= firstMark && id < lastMark }

// groupNumber returns the number of a group in the text of /etc/group; false if it has none.
func groupNumber(text, name string) (uint32, bool) {
	for line := range strings.Lines(text) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) > 2 && f[0] == name {
			return number(f[2])
		}
	}
	return 0, false
}

// number parses an id that a process can have. The kernel uses the highest number for "no id".
func number(text string) (uint32, bool) {
	n, err := strconv.ParseUint(text, 10, 31)
	return uint32(n), err == nil
}
