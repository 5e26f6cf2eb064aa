// Package disk locks files between processes, appends lines to files that may be rotated, and advises on
// errors of file systems.
//
// Locks are those of flock(2). The kernel unlocks a file when the last process that has it open closes it or
// ends, so no lock outlives its holder.
package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLocked says that another process holds the lock.
var ErrLocked = errors.New("another process holds the lock")

// TryLock locks an open file, or returns [ErrLocked] immediately. Closing the file unlocks it.
func TryLock(file *os.File) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		err = ErrLocked
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	return nil
}

// pause is the interval between two tries. A context can't interrupt a blocking flock(2).
const pause = 10 * time.Millisecond

// Lock is like [TryLock] but retries until ctx ends; then it returns the last error.
func Lock(ctx context.Context, file *os.File) error {
	for tick := time.Tick(pause); ; {
		err := TryLock(file)
		if !errors.Is(err, ErrLocked) {
			return err
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return err
		}
	}
}

// OpenLock opens a file to lock, and creates it for its owner only if it is missing.
func OpenLock(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) }

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
