package image

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime"
)

// known reports whether an error says already what clients are told.
func known(err error) bool {
	var e *runtime.Error
	return errors.As(err, &e)
}

// isFull reports whether an error comes of a full disk.
func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
