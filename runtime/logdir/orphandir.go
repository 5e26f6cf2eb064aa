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

// orphans are the directories of orphaned output.
type orphans struct {
	mu   sync.Mutex // guards what follows
	dirs []*orphaned
}

// An orphaned is one directory of orphaned output.
type orphaned struct {
	path  string
	at    time.Time
	files int
	bytes int64 // on the disk
	going bool  // it is being removed
}

func (o *orphaned) count(bytes int64) {
	o.files++
	o.bytes += bytes
}

// bytesOf returns what a file takes on the disk, 0 where it isn't there.
func bytesOf(file fs.DirEntry) int64 {
	info, err := file.Info()
	if err != nil {
		return 0
	}
	return output.DiskBytes(info.Size())
}

// add returns o, or the one that is in its place already.
func (all *orphans) add(o *orphaned) *orphaned {
	all.mu.Lock()
	defer all.mu.Unlock()
	if i := slices.IndexFunc(all.dirs, func(old *orphaned) bool { return old.path == o.path }); i >= 0 {
		return all.dirs[i]
	}
	all.dirs = append(all.dirs, o)
	return o
}

// grow counts a file of so many bytes that came to o.
func (all *orphans) grow(o *orphaned, bytes int64) {
	all.mu.Lock()
	defer all.mu.Unlock()
	o.count(bytes)
}

// found tells of what is there; "": nothing, or no more, since somebody took it
// away.
func (all *orphans) found(fresh bool) string {
	all.mu.Lock()
	dirs := slices.Clone(all.dirs)
	all.mu.Unlock()
	missing := map[*orphaned]bool{}
	for _, o := range dirs { // without the lock: a disk that stalls must hold up nobody else
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
	why := "the database doesn't know the executions of some output: was it restored from an older backup, or deleted?"
	if fresh {
		why = "the database was new when the server started, but there was output: was it deleted?"
	}
	return fmt.Sprintf("%s Logs: %d (%d MiB), moved to %s: restore the database from its backup and restart the server, which puts back what that one knows; or delete that directory",
		why, files, (bytes+1<<20-1)>>20, strings.Join(paths, ", "))
}

// outdated returns one that is to be removed: it is older than keep, or all take more
// than so many bytes together and it is the oldest of several. 0 bounds nothing.
func (all *orphans) outdated(keep time.Duration, most int64) *orphaned {
	all.mu.Lock()
	defer all.mu.Unlock()
	var bytes int64
	for _, o := range all.dirs {
		bytes += o.bytes
	}
	for i, o := range all.dirs { // oldest first
		if o.going || keep > 0 && time.Since(o.at) >= keep || most > 0 && bytes > most && i == 0 && len(all.dirs) > 1 {
			o.going = true
			return o
		}
	}
	return nil
}

func (all *orphans) drop(o *orphaned) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.dirs = slices.DeleteFunc(all.dirs, func(old *orphaned) bool { return old == o })
}
