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
