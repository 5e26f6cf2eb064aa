package files

import (
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime/paths"
)

// Limits of a list or search. The names of each directory on the current path are held in memory, with
// a descriptor for each level. Directories more than maxDepth levels down are listed last, each opened
// by its path from the top.
const (
	maxEntries = 1 << 16
	maxDepth   = 128
)

type listing struct {
	files     *Files
	path      string // as the client sent it
	recursive bool
	each      func(agent.FileInfo) error
	longest   int      // bytes of a path that a client can name
	entries   int      // read so far
	later     []string // deep directories that are listed at the end
}

// List implements serve.Executor. The paths of entries are relative to the directory.
func (f *Files) List(list agent.ListDir, each func(agent.FileInfo) error) error {
	fd, top, longest, err := f.openTop(list.Path)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(top) }()
	l := &listing{files: f, path: list.Path, recursive: list.Recursive, each: each, longest: longest}
	err = l.directory(fd, "", 0)
	for err == nil && len(l.later) > 0 {
		at := l.later[0]
		l.later = l.later[1:]
		err = l.below(top, at, at, 0)
	}
	return err
}

// openTop opens a directory to walk, and once more to open deep directories from there.
func (f *Files) openTop(p string) (fd, top, longest int, err error) {
	fd, longest, err = f.openDirectory(p, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return -1, -1, 0, err
	}
	if top, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		_ = unix.Close(fd)
		return -1, -1, 0, pathError(p, err)
	}
	return fd, top, longest, nil
}

// directory lists the entries of fd, which it closes, and those below.
func (l *listing) directory(fd int, prefix string, depth int) error {
	dir := os.NewFile(uintptr(fd), "directory")
	defer func() { _ = dir.Close() }()
	names, err := l.names(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		var stat unix.Stat_t
		if err := unix.Fstatat(fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			if err == unix.ENOENT {
				continue // it was removed meanwhile
			}
			return pathError(paths.Text(prefix+name), err)
		}
		info := l.files.info(fd, name, prefix+name, &stat)
		if err := l.each(info); err != nil {
			return err
		}
		if l.recursive && info.Type == "directory" {
			if err := l.below(fd, prefix+name, name, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *listing) names(dir *os.File) ([]string, error) {
	var names []string
	for {
		some, err := dir.Readdirnames(1024)
		names = append(names, some...)
		l.entries += len(some)
		if l.entries > maxEntries {
			return nil, &agent.Error{Code: agent.ErrTooMany, Path: l.path, Message: "has more than 65536 entries: list its directories one by one"}
		}
		if err == io.EOF {
			slices.Sort(names)
			return names, nil
		}
		if err != nil {
			return nil, &agent.Error{Code: agent.ErrWrongType, Path: l.path, Message: "can't be listed"}
		}
	}
}

func (l *listing) below(parent int, path, name string, depth int) error {
	switch {
	case len(path) > l.longest:
		return nil
	case depth > maxDepth:
		l.later = append(l.later, path)
		return nil
	}
	fd, err := l.files.openBelow(parent, name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil // it was removed or replaced after it was listed
	}
	return l.directory(fd, path+"/", depth)
}

// readLink returns the target of a link; nil if it can't be read.
func readLink(dir int, name string) []byte {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return nil
	}
	return buf[:n]
}
