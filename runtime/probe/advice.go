package probe

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Advice returns what to do about an error of the system's, for use after a colon;
// "": there is none for this one.
func Advice(err error) string {
	is := func(a, b error) bool { return errors.Is(err, a) || errors.Is(err, b) }
	switch {
	case is(unix.EMFILE, unix.ENFILE):
		return "raise the server's limit of open files (LimitNOFILE= in its unit), or have fewer clients and runners"
	case errors.Is(err, unix.EROFS):
		return "the file system is read-only: see why (dmesg), check it, and mount it to be written again"
	case is(unix.ENOSPC, unix.EDQUOT):
		return "the disk is full: free some room in the data directory"
	}
	return ""
}
