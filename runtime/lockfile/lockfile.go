// Package lockfile locks files and directories between processes, with flock(2). The kernel unlocks
// a file when the last process that has it open closes it or ends, so no lock outlives its holder.
package lockfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHeld says that another process holds the lock.
var ErrHeld = errors.New("another process holds the lock")

// Try locks an open file, or returns [ErrHeld] immediately. Closing the file unlocks it.
func Try(file *os.File) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		err = ErrHeld
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	return nil
}

// pause is the interval between two tries. A context can't interrupt a blocking flock(2).
const pause = 10 * time.Millisecond

// Wait is like [Try] but retries until ctx ends; then it returns the last error.
func Wait(ctx context.Context, file *os.File) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		err := Try(file)
		if !errors.Is(err, ErrHeld) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// Open opens a file to lock, and creates it for its owner only if it is missing.
func Open(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) }
