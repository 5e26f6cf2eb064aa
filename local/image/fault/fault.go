// Package fault has the errors of images that clients see: what is wrong with one,
// and what it takes too much of.
package fault

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime"
)

// Broken is the error of an image that will never do.
func Broken(why string, err error) error {
	return &runtime.Error{Code: runtime.CodeInvalidInput, Field: "image", Message: "can't be used: " + why, Err: err}
}

// TooLarge is the error of an image that takes more than is allowed.
func TooLarge(format string, args ...any) error { return Broken(fmt.Sprintf(format, args...), nil) }

// Known reports whether an error says already what clients see.
func Known(err error) bool {
	var e *runtime.Error
	return errors.As(err, &e)
}

// IsFull reports whether an error comes of a full disk.
func IsFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// Size is a number of bytes for people.
func Size(bytes int64) string {
	if bytes < 10<<20 {
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}
