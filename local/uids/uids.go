// Package uids allocates ranges of user ids, so that no two sandboxes of a machine share a user,
// even with several servers.
//
// An allocated range is a symbolic link, named after its number, in one directory for the whole
// machine. It points to a directory of its holder. Making a link is atomic, and a link whose target
// is missing counts as free.
package uids

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Default is the directory that all servers of a machine share. It is lost at a reboot, like all
// sandboxes.
const Default = "/run/rockpool/uids"

// Ranges allocates the numbers 0 to Count-1. Its methods are safe for concurrent use, also by
// several processes.
type Ranges struct {
	Dir   string
	Count int

	mu   sync.Mutex // guards next
	next int
}

// Take allocates a number for holder, the absolute path of a directory that must exist as long as
// the number is needed. It returns an error if all are in use.
func (r *Ranges) Take(holder string) (int, error) {
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return 0, err
	}
	for range r.Count {
		n := r.candidate()
		at := r.path(n)
		err := os.Symlink(holder, at)
		if errors.Is(err, fs.ErrExist) {
			if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) {
				continue
			}
			err = r.replace(at, holder)
		}
		if errors.Is(err, errTaken) {
			continue
		}
		if err != nil {
			return 0, err
		}
		return n, nil
	}
	return 0, fmt.Errorf("all %d ranges of user ids are in use (see %s)", r.Count, r.Dir)
}

// errTaken means that the next number must be tried.
var errTaken = errors.New("another server took the range meanwhile")

// replace takes over a link whose target is missing.
func (r *Ranges) replace(at, holder string) error {
	unlock, err := r.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) {
		return errTaken
	}
	if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(holder, at); errors.Is(err, fs.ErrExist) {
		return errTaken
	} else if err != nil {
		return err
	}
	return nil
}

// lock keeps other servers from deleting links, so that the link that was checked is the one that
// is deleted.
func (r *Ranges) lock() (unlock func(), err error) {
	lock, err := os.OpenFile(filepath.Join(r.Dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	// Closing the file unlocks it (flock(2)).
	return func() { _ = lock.Close() }, nil
}

// candidate returns the number to try next, whether it is free or not.
func (r *Ranges) candidate() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.next
	r.next = (n + 1) % r.Count
	return n
}

// Release frees a number if holder has it. All processes of the range's users must have ended.
func (r *Ranges) Release(n int, holder string) error {
	if _, err := os.Lstat(r.path(n)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	unlock, err := r.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if to, err := os.Readlink(r.path(n)); err != nil || to != holder {
		return nil
	}
	if err := os.Remove(r.path(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Held returns the allocated numbers whose holders are below dir, with the holders.
func (r *Ranges) Held(dir string) (map[int]string, error) {
	entries, err := os.ReadDir(r.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	held := map[int]string{}
	for _, entry := range entries {
		n, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if to, err := os.Readlink(r.path(n)); err == nil && strings.HasPrefix(to, dir+"/") {
			held[n] = to
		}
	}
	return held, nil
}

// path returns the path of a number's link.
func (r *Ranges) path(n int) string { return filepath.Join(r.Dir, strconv.Itoa(n)) }
