package confinement

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// User is the user of commands, if the agent may choose. Only [RunAs] changes it, before anything runs.
var User uint32 = 1000

// Group is the group of commands, likewise.
var Group uint32 = 1000

// ZygoteUser is the user, and the group, of interpreters that fork for commands (package warm):
// none that commands could signal, trace or read.
const ZygoteUser = 59999

// RunAs has commands run as the account that an image names, as Docker reads it: a user's name or number,
// and perhaps ":" and a group's. Files of the image are that user's. Root isn't: commands aren't
// root.
func RunAs(account string) error {
	passwd, _ := os.ReadFile("/etc/passwd")
	group, _ := os.ReadFile("/etc/group")
	uid, gid, err := lookUp(account, string(passwd), string(group))
	if err == nil && uid != 0 {
		User, Group = uid, gid
	}
	return err
}

// lookUp returns an account's ids, by the texts of /etc/passwd and /etc/group; 0, 0 is root.
func lookUp(account, passwd, group string) (uid, gid uint32, err error) {
	user, ofGroup, _ := strings.Cut(account, ":")
	uid, numeric := number(user)
	known := numeric
	gid = uid
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
		return 0, 0, fmt.Errorf("the image's user %q isn't in its /etc/passwd", account)
	case uid >= ZygoteUser || gid >= ZygoteUser || uid != 0 && gid == 0:
		return 0, 0, fmt.Errorf("the image's user %q is %d:%d: 1 to %d are taken", account, uid, gid, ZygoteUser-1)
	}
	return uid, gid, nil
}

func groupNumber(text, name string) (uint32, bool) {
	for line := range strings.Lines(text) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) > 2 && f[0] == name {
			return number(f[2])
		}
	}
	return 0, false
}

func number(text string) (uint32, bool) {
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err == nil
}
