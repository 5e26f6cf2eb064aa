package disk

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Advice returns what to do about an error of the system, for use after a colon; "" means no advice.
func Advice(err error) string {
	is := func(a, b error) bool { return errors.Is(err, a) || errors.Is(err, b) }
	switch {
	case is(unix.EMFILE, unix.ENFILE):
		return "raise the server's limit of open files (LimitNOFILE= in its unit), or reduce the number of clients and runners"
	case errors.Is(err, unix.EROFS):
		return "the file system is read-only: see the kernel's log for the reason (dmesg), check the file system, and remount it writable"
	case is(unix.ENOSPC, unix.EDQUOT):
		return "the disk is full: free some space in the data directory"
	}
	return ""
}
