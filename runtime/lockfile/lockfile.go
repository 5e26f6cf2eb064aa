// Package lockfile locks files and directories among processes, by flock(2). The kernel
// unlocks a file when the last process that has it open ends or closes it, so that a lock
// outlives nobody.
package lockfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHeld is why a lock can't be taken: somebody else has it.
var ErrHeld = errors.New("it is locked")

// Try locks an open file, or returns [ErrHeld]. Closing the file unlocks it.
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

// pause is between two tries: flock(2) can't be waited for until a context ends.
const pause = 10 * time.Millisecond

// Wait is [Try], again until ctx ends.
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

// Open opens a file for its lock, and makes it where it is missing, for its owner alone.
func Open(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) }
