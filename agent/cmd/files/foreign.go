package files

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// foreign distinguishes the runner's files from other files that the agent sees. Root in a nested
// runner is root of the machine. A program could place a link through which that root would read
// files for a client that no user of the machine may read. So the agent uses its own rights only on
// the runner's own mounts, and elsewhere those of a command.
type foreign struct{ own map[uint64]bool } // ids of the runner's mounts

// foreignTo returns a foreign whose own mounts are those at the given points.
func foreignTo(points ...string) (*foreign, error) {
	f := &foreign{map[uint64]bool{}}
	for _, at := range points {
		id, err := mountOf(unix.AT_FDCWD, at)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		f.own[id] = true
	}
	return f, nil
}

// has reports whether an open file isn't the runner's.
func (f *foreign) has(fd int) bool {
	if f == nil {
		return false
	}
	id, err := mountOf(fd, "")
	return err != nil || !f.own[id]
}

// mountOf returns the id of the mount that a file is on. An empty path is the file dir itself.
func mountOf(dir int, path string) (uint64, error) {
	var stat unix.Statx_t
	if err := unix.Statx(dir, path, unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &stat); err != nil {
		return 0, err
	}
	if stat.Mask&unix.STATX_MNT_ID == 0 {
		return 0, unix.EOPNOTSUPP
	}
	return stat.Mnt_id, nil
}
