// Package fault makes the errors of images that clients see: an image is invalid, or exceeds a
// limit.
package fault

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime"
)

// Broken returns INVALID_INPUT for an image that can never be used. why must name no path of the
// machine.
func Broken(why string, err error) error {
	return &runtime.Error{Code: runtime.CodeInvalidInput, Field: "image", Message: "can't be used: " + why, Err: err}
}

// TooLarge returns INVALID_INPUT for an image that exceeds a limit.
func TooLarge(format string, args ...any) error { return Broken(fmt.Sprintf(format, args...), nil) }

// Known reports whether an error already has a message for clients.
func Known(err error) bool {
	var e *runtime.Error
	return errors.As(err, &e)
}

// IsFull reports whether an error is due to a full disk or an exceeded disk quota.
func IsFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// Size formats a number of bytes.
func Size(bytes int64) string {
	if bytes < 10<<20 {
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}
