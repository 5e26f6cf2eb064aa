package helper

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// CheckListener returns an error unless a descriptor is a listening Unix stream socket. Nothing
// else is handed to a sandbox.
func CheckListener(fd int) error {
	for _, o := range []struct{ option, want int }{
		{unix.SO_DOMAIN, unix.AF_UNIX}, {unix.SO_TYPE, unix.SOCK_STREAM}, {unix.SO_ACCEPTCONN, 1},
	} {
		got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, o.option)
		if err != nil {
			return fmt.Errorf("the descriptor for the agent isn't a socket: %w", err)
		}
		if got != o.want {
			return errors.New("the descriptor for the agent isn't a listening Unix stream socket")
		}
	}
	return nil
}
