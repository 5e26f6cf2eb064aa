package files

import (
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// deepest is the depth of a removal, which holds a descriptor for each level. Deeper
	// directories are moved up first.
	deepest = 64

	// rounds bounds how often a directory is emptied again while user code fills it.
	rounds = 1000
)

// remove carries out a deletion. It reports whether anything existed: the path, or the directory to
// empty.
func (f *Files) remove(d deletion) (was bool, err error) {
	name, flags := path.Dir(d.path), uint64(unix.O_PATH)
	if d.inside {
		name, flags = d.path, unix.O_RDONLY
	}
	fd, err := f.open(name, flags|unix.O_DIRECTORY)
	if err == unix.ENOENT || err == unix.ENOTDIR {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = unix.Close(fd) }()
	if writable(fd) != nil {
		return false, unix.EACCES
	}
	r := &removal{}
	if d.inside {
		r.top = fd
		return true, r.empty(fd, 0)
	}
	err = r.entry(fd, path.Base(d.path), 0)
	if err == unix.ENOENT {
		return false, nil
	}
	return err == nil, err
}

// A removal removes one tree. It follows no links and stays in the tree's file system.
type removal struct {
	top   int // descriptor of the topmost directory to empty; deep directories are moved there
	moved int // directories that were moved to top
}

// entry removes a name and, if it is a directory, its contents. It returns ENOENT if the name
// doesn't exist.
func (r *removal) entry(dir int, name string, depth int) error {
	// This needs no look at the type. For a directory the kernel returns EISDIR, POSIX allows
	// EPERM.
	unlinked := unix.Unlinkat(dir, name, 0)
	if unlinked != unix.EISDIR && unlinked != unix.EPERM {
		return unlinked
	}
	if depth > deepest {
		r.moved++
		return unix.Renameat(dir, name, r.top, ".rockpool-deep-"+strconv.Itoa(r.moved))
	}
	fd, err := openToRemove(dir, name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err == unix.EACCES {
		fd, err = openClosed(dir, name)
	}
	if err == unix.ENOTDIR {
		return unlinked // EPERM: a file that another user protects
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if depth == 0 {
		r.top = fd
	}
	for range rounds {
		if err := r.empty(fd, depth); err != nil {
			return err
		}
		if err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); err != unix.ENOTEMPTY {
			return err
		}
	}
	return unix.ENOTEMPTY
}

func openToRemove(dir int, name string, flags uint64) (int, error) {
	return openat2(dir, name, flags|unix.O_DIRECTORY|unix.O_NOFOLLOW,
		unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_XDEV)
}

// openClosed opens a directory whose mode denies that to its owner, after it has changed the mode.
func openClosed(dir int, name string) (int, error) {
	fd, err := openToRemove(dir, name, unix.O_PATH)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(fd) }()
	if unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), 0o700) != nil {
		return -1, unix.EACCES
	}
	return openToRemove(dir, name, unix.O_RDONLY|unix.O_NONBLOCK)
}

func (r *removal) empty(fd, depth int) error {
	buf := make([]byte, 8<<10)
	var failure error
	for range rounds {
		if _, err := unix.Seek(fd, 0, 0); err != nil {
			return err
		}
		removed := 0
		failure = nil
		for {
			n, err := unix.Getdents(fd, buf)
			if err != nil {
				return err
			}
			if n == 0 {
				break
			}
			_, _, names := unix.ParseDirent(buf[:n], -1, nil)
			for _, name := range names {
				switch err := r.entry(fd, name, depth+1); err {
				case nil:
					removed++
				case unix.ENOENT:
				default:
					failure = err
				}
			}
		}
		// Removals while a directory is read can hide other entries, so read it again until it is empty.
		if removed == 0 {
			return failure
		}
	}
	return failure
}
