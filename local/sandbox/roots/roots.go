// Package roots tells what nobody but root can change.
package roots

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Alone returns an error unless nobody but root can change a file, or put
// something into a directory, or another in its place. The path is absolute, and
// no link may be in it.
func Alone(path string) error {
	for at := path; ; at = filepath.Dir(at) {
		var info unix.Stat_t
		if err := unix.Lstat(at, &info); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		// What is root's stays in a sticky directory.
		others := info.Mode&0o022 != 0 && (at == path || info.Mode&unix.S_ISVTX == 0)
		if info.Mode&unix.S_IFMT == unix.S_IFLNK || info.Uid != 0 || others {
			return fmt.Errorf("%s must be root's, no link, and nobody else may write to it", at)
		}
		if at == "/" {
			return nil
		}
	}
}
