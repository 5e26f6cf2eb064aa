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
	"github.com/rockpool/rockpool/runtime/backoff"
)

// Limits of watches. The runner's root may have 8192 watches of inotify.
const (
	mostWatched   = 4096    // directories of all watchers together
	mostPathBytes = 1 << 20 // of the paths of one watcher's directories
	mostWalked    = 4096    // entries inspected for one batch of events; more than may be reported
	gathering     = 50 * time.Millisecond
	recovery      = time.Second // pause before a watcher that lost changes starts again
	readsAtOnce   = 128         // of 64 KiB; more than the kernel queues
)

// temporaryPrefix begins the names of the agent's temporary files, which it renames afterwards.
// Watches don't report them.
const temporaryPrefix = ".rockpool-"

// watchMask are the events of every watch. Entries that were deleted while open cause none, and the
// kernel rejects what isn't a directory.
const watchMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
	unix.IN_DELETE_SELF | unix.IN_EXCL_UNLINK | unix.IN_ONLYDIR

// errOverflow says that the kernel dropped changes, or that reporting them would take too much
// work.
var errOverflow = errors.New("changes were lost")

// Watch implements serve.Executor.
func (f *Files) Watch(ctx context.Context, wanted agent.Watch, each func(agent.Changes) error) error {
	root, _, err := f.openDirectory(wanted.Path, unix.O_PATH)
	if err != nil {
		return err
	}
	w := &watcher{Watch: wanted, files: f}
	err = unix.Fstat(root, &w.root)
	view := pseudo(root)
	_ = unix.Close(root) // the kernel reports the directory's deletion only while it isn't open
	if err != nil {
		return pathError(wanted.Path, err)
	}
	if view {
		return &agent.Error{Code: agent.ErrDenied, Path: wanted.Path, Message: "is in a file system of the kernel, such as /proc, which can't be watched"}
	}
	first := agent.Changes{}
	for {
		err := w.watch(ctx, first, each)
		if err != errOverflow {
			return err
		}
		if backoff.Sleep(ctx, recovery) != nil {
			return nil
		}
		first.Lost = true
	}
}

// A watcher is one Watch in progress. One goroutine uses it.
type watcher struct {
	agent.Watch
	files   *Files
	root    unix.Stat_t      // of the directory
	fd      int              // descriptor of the inotify instance
	events  *os.File         // the same instance
	top     int32            // watch descriptor of the directory
	dirs    map[int32]string // paths below the directory, by watch descriptor
	bytes   int              // of the paths in dirs
	began   bool             // everything is watched
	later   []string         // deep directories of a walk, whose entries are read at its end
	budget  int              // entries that may still be inspected for the current batch
	pending pendingChanges
}

// watch reports first when everything is watched, then changes. errOverflow says that some were
// lost.
func (w *watcher) watch(ctx context.Context, first agent.Changes, each func(agent.Changes) error) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return w.tooMany("the kernel has no inotify instance left for this runner: end another watch")
	}
	w.fd, w.events, w.dirs, w.bytes, w.pending = fd, os.NewFile(uintptr(fd), "inotify"), map[int32]string{}, 0, pendingChanges{}
	w.began, w.later, w.budget = false, nil, maxEntries
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
	// A read of the instance doesn't end with ctx. A deadline in the past ends it.
	stop := context.AfterFunc(ctx, func() { _ = w.events.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buf := make([]byte, 64<<10)
	for {
		n, err := w.events.Read(buf)
		// The pause lets the changes of a moment arrive, so that they are merged.
		if err != nil || backoff.Sleep(ctx, gathering) != nil {
			return ctx.Err()
		}
		ended := w.gather(ctx, buf, n)
		if ended == errOverflow || ctx.Err() != nil {
			return ended
		}
		if changes := w.pending.take(); len(changes.Changes) > 0 || changes.Lost {
			ended = cmp.Or(each(changes), ended)
		}
		if ended != nil {
			return ended
		}
	}
}

// gather handles the n bytes of events in buf, and the events that arrived meanwhile.
func (w *watcher) gather(ctx context.Context, buf []byte, n int) error {
	w.budget = mostWalked
	for range readsAtOnce {
		if err := w.take(ctx, buf[:n]); err != nil {
			return err
		}
		// Without events Read would wait in Go's poller.
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

// spend counts an inspected entry. It fails when ctx has ended or the budget is used up. Otherwise
// a program could create events that each cost a walk, faster than the agent can walk.
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
	return w.tooMany("has more than 65536 entries: watch a directory below")
}

// begin starts to watch the directory and, if recursive, those below it.
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

// add watches an open directory. It returns -1 if that is impossible: commands can't read the
// directory, or it was removed.
func (w *watcher) add(fd int, at string) (int32, error) {
	if len(at) > unix.PathMax || w.bytes+len(at) > mostPathBytes {
		return -1, w.tooMany("has directories with paths that are too long: watch one of those instead")
	}
	mask := uint32(watchMask)
	if at == "" {
		mask |= unix.IN_MOVE_SELF
	}
	wd, err := w.files.at(fd, func() (int, error) {
		return unix.InotifyAddWatch(w.fd, "/proc/self/fd/"+strconv.Itoa(fd), mask)
	})
	if err == unix.ENOSPC || err == unix.ENOMEM {
		return -1, w.tooMany("the kernel has no inotify watches left for this runner: end another watch")
	}
	if err != nil {
		return -1, nil
	}
	// For a directory that is watched already the kernel returns the same watch (inotify(7)).
	old, there := w.dirs[int32(wd)]
	if !there && w.files.watched.Add(1) > mostWatched {
		w.files.watched.Add(-1)
		return -1, w.tooMany("would exceed the runner's limit of 4096 watched directories: watch a directory below")
	}
	w.dirs[int32(wd)] = at
	w.bytes += len(at) - len(old)
	return int32(wd), nil
}

func (w *watcher) tooMany(message string) *agent.Error {
	return &agent.Error{Code: agent.ErrTooMany, Path: w.Path, Message: message}
}

// tree watches the directories below a watched one. With tell it reports all existing entries as
// created.
func (w *watcher) tree(ctx context.Context, at string, tell bool) error {
	fd, err := w.open(at, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil || fd < 0 {
		return err
	}
	err = w.within(ctx, fd, at, tell, 0)
	for err == nil && len(w.later) > 0 {
		at, w.later = w.later[0], w.later[1:]
		if fd, err = w.open(at, unix.O_RDONLY|unix.O_NONBLOCK); err == nil && fd >= 0 {
			err = w.within(ctx, fd, at, tell, 0)
		}
	}
	return err
}

// open opens a directory below the watched one. It returns -1 if the directory was removed or isn't
// accessible. An error means that the watched directory was moved or deleted.
func (w *watcher) open(at string, flags uint64) (int, error) {
	root, _, err := w.files.openDirectory(w.Path, unix.O_PATH)
	if err != nil {
		return -1, w.gone()
	}
	defer func() { _ = unix.Close(root) }()
	var stat unix.Stat_t
	if unix.Fstat(root, &stat) != nil || stat.Dev != w.root.Dev || stat.Ino != w.root.Ino {
		return -1, w.gone()
	}
	if fd, err := w.files.openBelow(root, cmp.Or(at, "."), flags); err == nil {
		return fd, nil
	}
	return -1, nil
}

func (w *watcher) gone() error {
	return &agent.Error{Code: agent.ErrNotFound, Path: w.Path, Message: "was deleted or moved away"}
}

// within does the work of tree for an open directory, which it closes.
func (w *watcher) within(ctx context.Context, fd int, at string, tell bool, depth int) error {
	dir := os.NewFile(uintptr(fd), "directory")
	defer func() { _ = dir.Close() }()
	if depth > maxDepth { // each level holds a descriptor
		w.later = append(w.later, at)
		return nil
	}
	for {
		some, err := dir.Readdirnames(1024)
		for _, name := range some {
			if err := w.found(ctx, fd, at, name, tell, depth); err != nil {
				return err
			}
		}
		if err != nil {
			return nil // the end, or the directory was removed
		}
	}
}

// found handles an entry that a walk finds. It watches a directory before it reads the entries
// below, so that none is missed in between.
func (w *watcher) found(ctx context.Context, parent int, at, name string, tell bool, depth int) error {
	if err := w.spend(ctx); err != nil {
		return err
	}
	path := join(at, name)
	var stat unix.Stat_t
	if unix.Fstatat(parent, name, &stat, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return nil // it was removed, which is reported if its creation was
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

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "/" + name
}

// left ends the watches of a directory that was moved away and of those below, because their paths
// have changed.
func (w *watcher) left(at string) {
	for wd, path := range w.dirs {
		if path == at || isBelow(path, at) {
			_, _ = unix.InotifyRmWatch(w.fd, uint32(wd))
			w.forget(wd)
		}
	}
}

// replaced reports the entry that is now at the path of a moved entry. After an exchange of two
// entries no other event reports it.
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

// created reports an entry that was created or moved here. It watches a directory, and those below.
func (w *watcher) created(ctx context.Context, path string, directory bool) error {
	w.pending.add(path, agent.ChangeCreated, directory)
	if !directory || !w.Recursive {
		return nil
	}
	fd, err := w.open(path, unix.O_PATH)
	if err != nil || fd < 0 {
		return err
	}
	wd, err := w.add(fd, path)
	_ = unix.Close(fd)
	if err != nil || wd < 0 {
		return err
	}
	return w.tree(ctx, path, true) // report entries that were created before the watch
}

// forget removes a watch that the kernel has removed or will remove.
func (w *watcher) forget(wd int32) {
	if at, ok := w.dirs[wd]; ok {
		w.bytes -= len(at)
		delete(w.dirs, wd)
		w.files.watched.Add(-1)
	}
}
