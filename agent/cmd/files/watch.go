package files

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

// Bounds of watching. The runner's root may have 8192 watches of inotify.
const (
	mostWatched   = 4096    // directories, of all that watch together
	mostPathBytes = 1 << 20 // of the paths of one watcher's directories
	mostWalked    = 4096    // entries, for the events that are gathered: more than may be reported
	gathering     = 50 * time.Millisecond
	recovery      = time.Second // before it watches anew what lost changes
	readsAtOnce   = 128         // of 64 KiB: more than the kernel holds
)

// temporaryPrefix begins the names of files that the agent writes and then renames.
const temporaryPrefix = ".rockpool-"

const watchMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
	unix.IN_DELETE_SELF | unix.IN_EXCL_UNLINK | unix.IN_ONLYDIR

// errOverflow says that the kernel dropped changes, or that they would need too much work.
var errOverflow = errors.New("changes were lost")

// Watch implements serve.Finder.
func (f *Files) Watch(ctx context.Context, wanted agent.Watch, each func(agent.Changes) error) error {
	root, err := f.open(f.absolute(wanted.Path), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return pathError(wanted.Path, err)
	}
	w := &watcher{Watch: wanted, files: f}
	err = unix.Fstat(root, &w.root)
	view := pseudo(root)
	_ = unix.Close(root) // while it is open, the kernel doesn't report that it was deleted
	if err != nil {
		return pathError(wanted.Path, err)
	}
	if view {
		return &agent.Error{Code: agent.ErrDenied, Path: wanted.Path, Message: "not a directory of files but a view of the kernel"}
	}
	first := agent.Changes{}
	for {
		err := w.watch(ctx, first, each)
		if err != errOverflow {
			return err
		}
		if !pause(ctx, recovery) {
			return nil
		}
		first.Lost = true
	}
}

// pause returns true after d, and false when ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// A watcher is one Watch that runs.
type watcher struct {
	agent.Watch
	files   *Files
	root    unix.Stat_t // the directory
	fd      int         // the instance of inotify
	events  *os.File    // the same
	top     int32       // the directory's watch
	dirs    map[int32]string
	bytes   int // of dirs
	began   bool
	budget  int // entries that may still be looked at, for all that is gathered
	pending pending
}

// watch reports first once all is watched, then changes. ErrOverflow says that some were lost.
func (w *watcher) watch(ctx context.Context, first agent.Changes, each func(agent.Changes) error) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return w.tooMany("this machine has no instance of inotify left")
	}
	w.fd, w.events, w.dirs, w.bytes, w.pending = fd, os.NewFile(uintptr(fd), "inotify"), map[int32]string{}, 0, pending{}
	w.began, w.budget = false, maxEntries
	defer func() {
		_ = w.events.Close()
		w.files.watched.Add(-int64(len(w.dirs)))
	}()
	if err := w.begin(ctx); err != nil {
		return err
	}
	w.began = true
	if err := each(first); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = w.events.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buf := make([]byte, 64<<10)
	for {
		n, err := w.events.Read(buf)
		if err != nil || !pause(ctx, gathering) {
			return ctx.Err()
		}
		ended := w.gather(ctx, buf, n)
		if ended == errOverflow || ctx.Err() != nil {
			return ended
		}
		if err := w.send(each); err != nil || ended != nil {
			return cmp.Or(err, ended)
		}
	}
}

func (w *watcher) send(each func(agent.Changes) error) error {
	if changes := w.pending.take(); len(changes.Changes) > 0 || changes.Lost {
		return each(changes)
	}
	return nil
}

// gather takes the n bytes of events in buf, and those that came meanwhile.
func (w *watcher) gather(ctx context.Context, buf []byte, n int) error {
	w.budget = mostWalked
	for range readsAtOnce {
		if err := w.take(ctx, buf[:n]); err != nil {
			return err
		}
		if left, err := unix.IoctlGetInt(w.fd, unix.TIOCINQ); err != nil || left == 0 {
			break
		}
		var err error
		if n, err = w.events.Read(buf); err != nil {
			break
		}
	}
	return nil
}

// spend counts an entry that is looked at. It fails when ctx ended, and when the budget is used up: a program
// can make events that each cost a walk, faster than the agent walks.
func (w *watcher) spend(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if w.budget--; w.budget >= 0 {
		return nil
	}
	if w.began {
		return errOverflow
	}
	return w.tooMany("holds more than 65536 entries: watch a directory below")
}

// begin watches the directory, and those below it.
func (w *watcher) begin(ctx context.Context) error {
	root, err := w.open("", unix.O_PATH)
	if err != nil {
		return err
	}
	top, err := w.add(root, "")
	_ = unix.Close(root)
	if err != nil {
		return err
	}
	if top < 0 {
		return pathError(w.Path, unix.EACCES)
	}
	w.top = top
	if !w.Recursive {
		return nil
	}
	return w.tree(ctx, "", false)
}

// add watches an open directory; -1: it can't be watched, since commands can't read it or it went.
func (w *watcher) add(fd int, at string) (int32, error) {
	if len(at) > mostPath || w.bytes+len(at) > mostPathBytes {
		return -1, w.tooMany("directories with too long paths are below it: watch one of them")
	}
	mask := uint32(watchMask)
	if at == "" {
		mask |= unix.IN_MOVE_SELF
	}
	watchIt := func() (int, error) {
		return unix.InotifyAddWatch(w.fd, "/proc/self/fd/"+strconv.Itoa(fd), mask)
	}
	do := watchIt
	if w.files.foreign.has(fd) {
		do = func() (int, error) { return asCommand(watchIt) }
	}
	wd, err := do()
	if err == unix.ENOSPC || err == unix.ENOMEM {
		return -1, w.tooMany("the kernel has no watches of inotify left for this runner")
	}
	if err != nil {
		return -1, nil
	}
	old, there := w.dirs[int32(wd)]
	if !there && w.files.watched.Add(1) > mostWatched {
		w.files.watched.Add(-1)
		return -1, w.tooMany("more than 4096 directories of this runner would be watched: watch a directory below")
	}
	w.dirs[int32(wd)] = at
	w.bytes += len(at) - len(old)
	return int32(wd), nil
}

func (w *watcher) tooMany(message string) *agent.Error {
	return &agent.Error{Code: agent.ErrTooMany, Path: w.Path, Message: message}
}

// tree watches the directories below one that is watched. With tell it reports all that is there as created.
func (w *watcher) tree(ctx context.Context, at string, tell bool) error {
	fd, err := w.open(at, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil || fd < 0 {
		return err
	}
	return w.within(ctx, fd, at, tell, 0)
}

// open opens a directory below the one that is watched; -1: it was removed, or is out of reach. An error means
// that the watched directory was moved or deleted.
func (w *watcher) open(at string, flags uint64) (int, error) {
	root, err := w.files.open(w.files.absolute(w.Path), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return -1, w.gone()
	}
	defer func() { _ = unix.Close(root) }()
	var stat unix.Stat_t
	if unix.Fstat(root, &stat) != nil || stat.Dev != w.root.Dev || stat.Ino != w.root.Ino {
		return -1, w.gone()
	}
	if at == "" {
		at = "."
	}
	fd, err := w.files.openIn(root, at, flags|unix.O_DIRECTORY|unix.O_NOFOLLOW, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return -1, nil
	}
	if pseudo(fd) {
		_ = unix.Close(fd)
		return -1, nil
	}
	return fd, nil
}

func (w *watcher) gone() error {
	return &agent.Error{Code: agent.ErrNotFound, Path: w.Path, Message: "was deleted or moved away"}
}

// within is tree, for an open directory, which it closes.
func (w *watcher) within(ctx context.Context, fd int, at string, tell bool, depth int) error {
	dir := os.NewFile(uintptr(fd), "directory")
	defer func() { _ = dir.Close() }()
	if depth > maxDepth {
		return w.tooMany("holds directories more than 128 deep: watch one of them")
	}
	for {
		some, err := dir.Readdirnames(1024)
		for _, name := range some {
			if err := w.found(ctx, fd, at, name, tell, depth); err != nil {
				return err
			}
		}
		if err != nil {
			return nil // its end, or it went
		}
	}
}

func (w *watcher) found(ctx context.Context, parent int, at, name string, tell bool, depth int) error {
	if err := w.spend(ctx); err != nil {
		return err
	}
	path := join(at, name)
	var stat unix.Stat_t
	if unix.Fstatat(parent, name, &stat, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return nil // it went, which is reported if it was seen
	}
	directory := stat.Mode&unix.S_IFMT == unix.S_IFDIR
	if tell && !strings.HasPrefix(name, temporaryPrefix) {
		w.pending.add(path, agent.ChangeCreated, directory)
	}
	if !directory {
		return nil
	}
	fd, err := w.open(path, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil || fd < 0 {
		return err
	}
	if wd, err := w.add(fd, path); err != nil || wd < 0 {
		_ = unix.Close(fd)
		return err
	}
	return w.within(ctx, fd, path, tell, depth+1)
}

// join returns the path of a name in a directory that is watched.
func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "/" + name
}

// appeared watches a directory that was made, or moved here, and all below.
func (w *watcher) appeared(ctx context.Context, at string) error {
	fd, err := w.open(at, unix.O_PATH)
	if err != nil || fd < 0 {
		return err
	}
	wd, err := w.add(fd, at)
	_ = unix.Close(fd)
	if err != nil || wd < 0 {
		return err
	}
	return w.tree(ctx, at, true) // what came before it was watched
}

// left ends the watches of a directory that was moved away, and below: their paths aren't theirs any more.
func (w *watcher) left(at string) {
	for wd, path := range w.dirs {
		if path == at || isBelow(path, at) {
			_, _ = unix.InotifyRmWatch(w.fd, uint32(wd))
			w.forget(wd)
		}
	}
}

// replaced reports what is at the path of an entry that was moved away: after an exchange of two entries no other
// event says that.
func (w *watcher) replaced(ctx context.Context, at, name string) error {
	fd, err := w.open(at, unix.O_PATH)
	if err != nil || fd < 0 {
		return err
	}
	var stat unix.Stat_t
	err = unix.Fstatat(fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	_ = unix.Close(fd)
	if err != nil {
		return nil
	}
	return w.created(ctx, join(at, name), stat.Mode&unix.S_IFMT == unix.S_IFDIR)
}

// created reports an entry, and a directory's below it.
func (w *watcher) created(ctx context.Context, path string, directory bool) error {
	w.pending.add(path, agent.ChangeCreated, directory)
	if directory && w.Recursive {
		return w.appeared(ctx, path)
	}
	return nil
}

func (w *watcher) forget(wd int32) {
	if at, ok := w.dirs[wd]; ok {
		w.bytes -= len(at)
		delete(w.dirs, wd)
		w.files.watched.Add(-1)
	}
}
