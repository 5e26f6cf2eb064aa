package tree

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime"
)

// Invalid returns INVALID_INPUT for an unusable image. why must name no path of the machine.
func Invalid(why string, err error) error {
	return &runtime.Error{Code: runtime.CodeInvalidInput, Field: "image", Message: "can't be used: " + why, Err: err}
}

// TooLarge returns INVALID_INPUT for an image that exceeds a limit.
func TooLarge(format string, args ...any) error { return Invalid(fmt.Sprintf(format, args...), nil) }

// HasMessage reports whether an error already has a message for clients.
func HasMessage(err error) bool {
	_, has := errors.AsType[*runtime.Error](err)
	return has
}

// IsFull reports whether an error is due to a full disk or an exceeded disk quota.
func IsFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// FormatSize formats a number of bytes.
func FormatSize(bytes int64) string {
	if bytes < 10<<20 {
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}
