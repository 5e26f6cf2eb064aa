// Package uids allocates ranges of user ids, so that no two sandboxes of a machine share a user,
// even with several servers.
//
// An allocated range is a symbolic link, named after its number, in one directory for the whole
// machine. It points to a directory of its holder. A link whose target is missing counts as free, unless
// a process still has one of the range's ids: the directory may have been deleted while its sandbox ran.
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
	First int // first id of range 0
	Size  int // ids of a range; 0 means processes aren't examined

	mu   sync.Mutex // guards the fields below
	next int
	busy map[int]bool // ranges with a process at the last scan, or given since; nil means not scanned yet
}

// ErrNone means that no range is free.
var ErrNone = errors.New("no range of user ids is free")

// Root reports whether this process is root of the machine. Root of a user namespace that maps few ids, as
// unshare -Ur makes it, isn't: it can do what the user outside can.
func Root() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	return os.Geteuid() == 0 && (err != nil || mapsAll(string(text)))
}

// mapsAll reports whether a uid_map (user_namespaces(7)) maps the ids of all sandboxes to something.
func mapsAll(table string) bool {
	for line := range strings.Lines(table) {
		var first, outside, count uint64
		if _, err := fmt.Sscan(line, &first, &outside, &count); err == nil && first == 0 && count >= 1<<31 {
			return true
		}
	}
	return false
}

// Take allocates a number for holder, the absolute path of a directory that must exist as long as
// the number is needed. It returns an error if all are in use.
func (r *Ranges) Take(holder string) (int, error) {
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return 0, err
	}
	for range r.Count {
		n := r.candidate()
		if _, err := os.Stat(r.path(n)); !errors.Is(err, fs.ErrNotExist) {
			continue // its holder exists
		}
		_, err := os.Lstat(r.path(n))
		if used, err := r.inUse(n, err == nil); err != nil {
			return 0, err
		} else if used {
			continue
		}
		if took, err := r.link(n, holder); took || err != nil {
			r.gave(n)
			return n, err
		}
	}
	return 0, fmt.Errorf("%w: all %d are in use (see %s)", ErrNone, r.Count, r.Dir)
}

// inUse reports whether a process has an id of a range without a holder. It scans all processes, but not again
// for a range without a link that the last scan found free: links show what was allocated since. Control groups
// without processes don't matter: no sandbox sees another's.
func (r *Ranges) inUse(n int, linked bool) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Size == 0 || r.busy != nil && !r.busy[n] && !linked {
		return false, nil
	}
	busy := map[int]bool{}
	all, err := os.ReadDir("/proc")
	if err != nil {
		return false, err
	}
	for _, process := range all {
		if strings.Trim(process.Name(), "0123456789") != "" {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", process.Name(), "status"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) { // it may have ended
			return false, fmt.Errorf("which user ids are in use can't be read: %v", err) //nolint:errorlint // its cause isn't the sandbox's
		}
		for _, id := range idsOf(string(text)) {
			if n := (id - r.First) / r.Size; id >= r.First && n < r.Count {
				busy[n] = true
			}
		}
	}
	r.busy = busy
	return busy[n], nil
}

// gave makes the next use of a number scan again, since somebody may have deleted its link.
func (r *Ranges) gave(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy != nil {
		r.busy[n] = true
	}
}

// idsOf returns the user and group ids in a process's status (proc(5)).
func idsOf(status string) (ids []int) {
	for line := range strings.Lines(status) {
		name, values, _ := strings.Cut(line, ":")
		if name != "Uid" && name != "Gid" && name != "Groups" {
			continue
		}
		for _, value := range strings.Fields(values) {
			if id, err := strconv.Atoi(value); err == nil {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// link links a number without a holder to one. It reports false if another server was faster.
func (r *Ranges) link(n int, holder string) (bool, error) {
	unlock, err := r.lock()
	if err != nil {
		return false, err
	}
	defer unlock()
	if _, err := os.Stat(r.path(n)); !errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err := os.Remove(r.path(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	err = os.Symlink(holder, r.path(n))
	return err == nil, err
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

func (r *Ranges) candidate() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n = r.next
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
	if err = os.Remove(r.path(n)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
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

func (r *Ranges) path(n int) string { return filepath.Join(r.Dir, strconv.Itoa(n)) }
