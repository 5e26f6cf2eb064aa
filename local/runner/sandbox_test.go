package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"golang.org/x/sys/unix"
)

// TestErrorsThatProveTheEndOfARunner distinguishes errors of the kernel for a missing process or
// cgroup from errors that prove nothing.
func TestErrorsThatProveTheEndOfARunner(t *testing.T) {
	for err, want := range map[error]bool{
		unix.EACCES: true, unix.EIO: true, unix.EMFILE: true, unix.ENFILE: true, unix.ENOMEM: true,
		unix.ESRCH: false, unix.ENOENT: false, unix.ENODEV: false, unix.EINVAL: false, errors.New("it is another process"): false,
		fmt.Errorf("%w: %w", errHidden, unix.ENOENT): true,
	} {
		if got := unread(fmt.Errorf("look: %w", &fs.PathError{Op: "open", Path: "x", Err: err})); got != want {
			t.Errorf("%v: unread is %t, want %t", err, got, want)
		}
	}
}
