package logdir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/output"
)

// Orphaned output belongs to executions that the database doesn't contain, because the database was
// deleted, or restored from an older backup. It is moved into a directory of its own. A start with
// a database that contains the executions puts it back. Until then it is kept like finished
// executions: as long, and with a separate limit of the same size. Decision 35 says why.

// The name of a directory of orphaned output: a prefix and the time of the move, in UTC.
const (
	orphanedPrefix = "orphaned-"
	orphanedTime   = "20060102T150405Z"
)

// boundOrphans removes a part of the orphaned output that is outdated.
func (d *Dir) boundOrphans() error {
	_, most := d.quota.Used()
	o := d.orphans.outdated(d.options.Clock.Now(), d.options.Keep, most)
	if o == nil {
		return nil
	}
	// One shard per call, so that the work of each tick is bounded.
	left, err := shards(o.path)
	switch {
	case err != nil:
		return err
	case len(left) > 0:
		return os.RemoveAll(left[0])
	}
	if err := os.RemoveAll(o.path); err != nil {
		return err
	}
	d.orphans.drop(o)
	return nil
}

// shards returns the directories in dir that contain logs.
func shards(dir string) ([]string, error) {
	return namesIn(dir, func(name string) bool { return utf8.RuneCountInString(name) == 2 })
}

// namesIn returns the paths of the entries in dir whose name matches. A missing directory is empty.
func namesIn(dir string, match func(name string) bool) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []string
	for _, entry := range entries {
		if match(entry.Name()) {
			all = append(all, filepath.Join(dir, entry.Name()))
		}
	}
	return all, nil
}

// PutBack finds the output that earlier starts moved away, and puts back the output of executions
// that the database contains again. Call it before Count and Collect. An error in one directory
// doesn't affect the others.
func (d *Dir) PutBack(ctx context.Context) error {
	if d.options.Store.Shared() { // a shared database has no output without its execution
		return nil
	}
	paths, err := namesIn(d.path, func(name string) bool { return strings.HasPrefix(name, orphanedPrefix) })
	failed := []error{err}
	for _, path := range paths {
		at, err := time.Parse(orphanedTime, strings.TrimPrefix(filepath.Base(path), orphanedPrefix))
		if err != nil {
			continue // not made by Rockpool
		}
		o := &orphanDir{path: path, at: at}
		back, err := d.putAllBack(ctx, o)
		if err != nil {
			failed = append(failed, fmt.Errorf("put output back from %s: %w", path, err))
		}
		if back > 0 {
			d.options.Logger.Info("output was put back, because the database contains its executions again", zap.Int("executions", back), zap.String("from", path))
		}
		if os.Remove(path) != nil { // not empty
			d.orphans.add(o)
		}
	}
	return errors.Join(failed...)
}

// putAllBack puts back the known output of o, and counts the rest. It returns the first error.
func (d *Dir) putAllBack(ctx context.Context, o *orphanDir) (back int, err error) {
	dirs, err := shards(o.path)
	for _, dir := range dirs {
		n, failed := d.putBack(ctx, o, dir)
		back, err = back+n, cmp.Or(err, failed)
	}
	return back, err
}

// putBack puts back the known output of one directory, and counts the rest.
func (d *Dir) putBack(ctx context.Context, o *orphanDir, dir string) (back int, err error) {
	unknown, files, err := d.unknownIn(ctx, dir)
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		path := filepath.Join(dir, file.Name())
		if unknown[file.Name()] {
			o.count(bytesOf(file))
			continue
		}
		to := d.Path(runtime.ExecutionID(file.Name()))
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return back, err
		}
		switch err := rename(path, to); {
		case errors.Is(err, fs.ErrExist): // written in the meantime
			o.count(bytesOf(file))
		case err != nil:
			return back, err
		default:
			back++
		}
	}
	_ = os.Remove(dir) // succeeds only if it is empty
	return back, nil
}

// unknownIn returns the files in a directory, and the names of those whose execution isn't in the
// database.
func (d *Dir) unknownIn(ctx context.Context, dir string) (unknown map[string]bool, files []fs.DirEntry, err error) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	var ids []runtime.ExecutionID
	for _, file := range all {
		if strings.HasSuffix(file.Name(), output.Unreadable) || !utf8.ValidString(file.Name()) {
			continue // put aside for inspection, or not made by Rockpool
		}
		files = append(files, file)
		ids = append(ids, runtime.ExecutionID(file.Name()))
	}
	found, err := d.options.Store.Unknown(ctx, ids)
	unknown = make(map[string]bool, len(found))
	for _, id := range found {
		unknown[string(id)] = true
	}
	return unknown, files, err
}

// rename moves a file without replacing another one.
func rename(from, to string) error {
	return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
}

// MoveOrphans moves away the output of unknown executions. An execution is stored before its
// output, so output that is being written isn't mistaken for unknown. Each file is moved
// atomically, so a kill loses none. Files that can't be moved stay where they are until the next
// start; the error reports them.
func (d *Dir) MoveOrphans(ctx context.Context) error {
	if d.options.Store.Shared() {
		return nil
	}
	dirs, err := shards(d.path)
	failed := []error{err}
	var o *orphanDir
	for _, dir := range dirs {
		o, err = d.moveUnknown(ctx, o, dir)
		failed = append(failed, err)
	}
	failed = slices.DeleteFunc(failed, func(err error) bool { return err == nil })
	if found := d.Orphaned(); found != "" {
		d.options.Logger.Error(found)
	}
	if len(failed) == 0 || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("output of unknown executions could not be moved away and stays in place until the next start (%d errors); the first: %w", len(failed), failed[0])
}

// Orphaned describes the orphaned output, "" if there is none.
func (d *Dir) Orphaned() string { return d.orphans.found(d.options.Store.Fresh()) }

// moveUnknown moves the unknown files of one directory to o, or to a new directory. An error with
// one file doesn't affect the others; it returns the first.
func (d *Dir) moveUnknown(ctx context.Context, o *orphanDir, dir string) (*orphanDir, error) {
	unknown, files, err := d.unknownIn(ctx, dir)
	if err != nil || len(unknown) == 0 {
		return o, err
	}
	if o == nil {
		now := d.options.Clock.Now().UTC()
		o = d.orphans.add(&orphanDir{path: filepath.Join(d.path, orphanedPrefix+now.Format(orphanedTime)), at: now})
	}
	to := filepath.Join(o.path, filepath.Base(dir))
	if err := os.MkdirAll(to, 0o700); err != nil {
		return o, err
	}
	var failed error
	for _, file := range files {
		if !unknown[file.Name()] {
			continue
		}
		from, bytes := filepath.Join(dir, file.Name()), bytesOf(file)
		err := rename(from, filepath.Join(to, file.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed by retention meanwhile
		case err == nil:
			d.orphans.grow(o, bytes)
		case failed == nil:
			failed = fmt.Errorf("move %s: %w", from, err)
		}
	}
	return o, failed
}

// orphans are the directories of orphaned output, oldest first.
type orphans struct {
	mu   sync.Mutex // guards the fields below
	dirs []*orphanDir
}

type orphanDir struct {
	path  string
	at    time.Time
	files int
	bytes int64 // on the disk
	going bool  // being removed
}

func (o *orphanDir) count(bytes int64) {
	o.files++
	o.bytes += bytes
}

// bytesOf returns the disk use of a file, or 0 if it is missing.
func bytesOf(file fs.DirEntry) int64 {
	info, err := file.Info()
	if err != nil {
		return 0
	}
	return output.DiskBytes(info.Size())
}

// add returns o, or the existing directory with its path.
func (all *orphans) add(o *orphanDir) *orphanDir {
	all.mu.Lock()
	defer all.mu.Unlock()
	if i := slices.IndexFunc(all.dirs, func(old *orphanDir) bool { return old.path == o.path }); i >= 0 {
		return all.dirs[i]
	}
	all.dirs = append(all.dirs, o)
	return o
}

func (all *orphans) grow(o *orphanDir, bytes int64) {
	all.mu.Lock()
	defer all.mu.Unlock()
	o.count(bytes)
}

// found describes the orphaned output, "" if there is none or it has been taken away.
func (all *orphans) found(fresh bool) string {
	all.mu.Lock()
	dirs := slices.Clone(all.dirs)
	all.mu.Unlock()
	missing := map[*orphanDir]bool{}
	for _, o := range dirs { // without the lock, because a stalled disk must not block others
		_, err := os.Stat(o.path)
		missing[o] = errors.Is(err, fs.ErrNotExist)
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	all.dirs = slices.DeleteFunc(all.dirs, func(o *orphanDir) bool { return missing[o] && o.files > 0 })
	var files int
	var bytes int64
	var paths []string
	for _, o := range all.dirs {
		files, bytes, paths = files+o.files, bytes+o.bytes, append(paths, o.path)
	}
	if files == 0 {
		return ""
	}
	why := "the database doesn't contain the executions of some output: was it restored from an older backup, or deleted?"
	if fresh {
		why = "the database was new when the server started, but output existed: was the database deleted?"
	}
	return fmt.Sprintf("%s %d logs (%d MiB) were moved to %s: restore the database from its backup and restart the server, which then puts back the logs of known executions; or delete that directory",
		why, files, (bytes+1<<20-1)>>20, strings.Join(paths, ", "))
}

// outdated returns a directory to remove: one older than keep, or the oldest of several that
// together use more than most bytes. 0 means no limit.
func (all *orphans) outdated(now time.Time, keep time.Duration, most int64) *orphanDir {
	all.mu.Lock()
	defer all.mu.Unlock()
	var bytes int64
	for _, o := range all.dirs {
		bytes += o.bytes
	}
	for i, o := range all.dirs { // oldest first
		if o.going || keep > 0 && now.Sub(o.at) >= keep || most > 0 && bytes > most && i == 0 && len(all.dirs) > 1 {
			o.going = true
			return o
		}
	}
	return nil
}

// drop removes o from the list, not from the disk.
func (all *orphans) drop(o *orphanDir) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.dirs = slices.DeleteFunc(all.dirs, func(old *orphanDir) bool { return old == o })
}
