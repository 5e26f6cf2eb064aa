// Package roots determines whether only root can change a file.
package roots

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// RootOnly returns an error unless only root can change a file or directory, put something into the
// directory, or replace it. The path must be absolute. A path with a symbolic link is refused.
func RootOnly(path string) error {
	for at := path; ; at = filepath.Dir(at) {
		var info unix.Stat_t
		if err := unix.Lstat(at, &info); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		// In a sticky directory, others can't replace root's files.
		others := info.Mode&0o022 != 0 && (at == path || info.Mode&unix.S_ISVTX == 0)
		if info.Mode&unix.S_IFMT == unix.S_IFLNK || info.Uid != 0 || others {
			return fmt.Errorf("%s must belong to root, must not be a link, and nobody else may write to it", at)
		}
		if at == "/" {
			return nil
		}
	}
}
