package logdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime/output"
)

// orphans are the directories of orphaned output, oldest first.
type orphans struct {
	mu   sync.Mutex // guards the fields below
	dirs []*orphaned
}

type orphaned struct {
	path  string
	at    time.Time
	files int
	bytes int64 // on the disk
	going bool  // being removed
}

func (o *orphaned) count(bytes int64) {
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
func (all *orphans) add(o *orphaned) *orphaned {
	all.mu.Lock()
	defer all.mu.Unlock()
	if i := slices.IndexFunc(all.dirs, func(old *orphaned) bool { return old.path == o.path }); i >= 0 {
		return all.dirs[i]
	}
	all.dirs = append(all.dirs, o)
	return o
}

func (all *orphans) grow(o *orphaned, bytes int64) {
	all.mu.Lock()
	defer all.mu.Unlock()
	o.count(bytes)
}

// found describes the orphaned output, "" if there is none or it has been taken away.
func (all *orphans) found(fresh bool) string {
	all.mu.Lock()
	dirs := slices.Clone(all.dirs)
	all.mu.Unlock()
	missing := map[*orphaned]bool{}
	for _, o := range dirs { // without the lock, because a stalled disk must not block others
		_, err := os.Stat(o.path)
		missing[o] = errors.Is(err, fs.ErrNotExist)
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	all.dirs = slices.DeleteFunc(all.dirs, func(o *orphaned) bool { return missing[o] && o.files > 0 })
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
func (all *orphans) outdated(now time.Time, keep time.Duration, most int64) *orphaned {
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
func (all *orphans) drop(o *orphaned) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.dirs = slices.DeleteFunc(all.dirs, func(old *orphaned) bool { return old == o })
}
