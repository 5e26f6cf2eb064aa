package files

import (
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

const maxPaths = 10_000

// A plan is a checked update. Its paths are absolute and clean.
type plan struct {
	files   *Files
	update  agent.Update
	deletes []deletion // of update.Empty, then of update.Delete
	writes  []string   // paths of update.Write
}

type deletion struct {
	text   string // the path as the client sent it
	path   string // absolute and clean
	inside bool   // only the directory's contents
}

func (d deletion) covers(p string) bool {
	return !d.inside && p == d.path || isBelow(p, d.path)
}

// isBelow reports whether a path is inside a directory. Both are clean; a directory isn't below
// itself.
func isBelow(p, dir string) bool {
	return strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/") && len(p) > len(dir)
}

// A checker checks an update and changes nothing. User code may change everything between the check
// and the update. The check is for the client's mistakes; later problems are reported as failures.
type checker struct {
	plan
	workspace   unix.Stat_t           // identifies it, whatever path leads there
	directories map[string]*directory // inspected directories
	files       map[string]bool       // paths that will be files
	dirs        map[string]bool       // paths that will be directories
}

// A directory is one that exists or will be created.
type directory struct {
	exists bool
	fails  *agent.Error // why no entry can be created there, nil if that is possible
}

func (f *Files) check(update agent.Update) (*plan, error) {
	if n := len(update.Empty) + len(update.Delete) + len(update.Write); n > maxPaths {
		return nil, &agent.Error{Code: agent.ErrTooMany, Field: "write", Message: "an update may have at most 10000 paths: split it"}
	}
	c := &checker{plan: plan{files: f, update: update}, directories: map[string]*directory{}, files: map[string]bool{}, dirs: map[string]bool{}}
	if err := unix.Stat(f.workspace, &c.workspace); err != nil {
		return nil, pathError(f.workspace, err)
	}
	// Deletions are checked first, because apply carries them out first.
	for i, p := range update.Empty {
		if e := c.checkEmpty(p); e != nil {
			e.Field, e.Index, e.Path = "empty", i, p
			return nil, e
		}
	}
	for i, p := range update.Delete {
		if e := c.checkDelete(p); e != nil {
			e.Field, e.Index, e.Path = "delete", i, p
			return nil, e
		}
	}
	for i, w := range update.Write {
		if e := c.checkWrite(w); e != nil {
			e.Field, e.Index, e.Path = "write", i, w.Path
			return nil, e
		}
	}
	return &c.plan, nil
}

// isRoot reports whether a path is the workspace, or a directory above it.
func (c *checker) isRoot(p string) bool {
	return p == "/" || p == c.plan.files.workspace || isBelow(c.plan.files.workspace, p)
}

// checkEmpty checks a directory to empty and adds it to the plan. One that doesn't exist is no error.
func (c *checker) checkEmpty(p string) *agent.Error {
	l, e := c.plan.files.locate(p)
	if e != nil {
		return e
	}
	if c.isRoot(l.at) && l.at != c.plan.files.workspace {
		return &agent.Error{Code: agent.ErrInvalid, Message: "would delete the workspace itself"}
	}
	c.deletes = append(c.deletes, deletion{text: p, path: l.at, inside: true})
	fd, err := c.plan.files.open(l.at, unix.O_PATH)
	if err != nil {
		return absent(p, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var stat unix.Stat_t
	if unix.Fstat(fd, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return pathError(p, unix.ENOTDIR)
	}
	return writable(fd)
}

// checkDelete checks one deletion and adds it to the plan. A path that doesn't exist is no error.
func (c *checker) checkDelete(p string) *agent.Error {
	l, e := c.plan.files.locate(p)
	if e != nil {
		return e
	}
	if c.isRoot(l.at) {
		return &agent.Error{Code: agent.ErrInvalid, Message: "would delete the workspace itself"}
	}
	c.deletes = append(c.deletes, deletion{text: p, path: l.at})
	fd, err := c.plan.files.open(path.Dir(l.at), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return absent(p, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var stat unix.Stat_t
	if err := unix.Fstatat(fd, path.Base(l.at), &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return absent(p, err)
	}
	if l.directory && stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return &agent.Error{Code: agent.ErrWrongType, Message: "ends in a slash, but isn't a directory"}
	}
	// A link in the path can lead to the workspace, which its text doesn't show.
	if stat.Dev == c.workspace.Dev && stat.Ino == c.workspace.Ino {
		return &agent.Error{Code: agent.ErrInvalid, Message: "would delete the workspace itself"}
	}
	return writable(fd)
}

// absent returns nil for an error that means that there is nothing to delete.
func absent(p string, err error) *agent.Error {
	if err == unix.ENOENT || err == unix.ENOTDIR {
		return nil
	}
	return pathError(p, err)
}

// writable returns the reason why nothing can be changed in a directory, nil if there is none.
func writable(fd int) *agent.Error {
	var stat unix.Statfs_t
	if err := unix.Fstatfs(fd, &stat); err != nil {
		return pathError("", err)
	}
	// The type doesn't identify /dev, which is a tmpfs.
	at := string(readLink(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd)))
	switch {
	case stat.Flags&unix.ST_RDONLY != 0:
		return pathError("", unix.EROFS)
	case pseudo(fd), at == "/dev", isBelow(at, "/dev"), at == "/proc", isBelow(at, "/proc"), at == "/sys", isBelow(at, "/sys"):
		return &agent.Error{Code: agent.ErrDenied, Message: "is in a file system of the kernel, such as /proc, which can't be changed"}
	}
	if err := unix.Faccessat(fd, ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return pathError("", err)
	}
	return nil
}

func (c *checker) deleted(p string) bool {
	for _, d := range c.deletes {
		if d.covers(p) {
			return true
		}
	}
	return false
}

// checkWrite checks one write and adds it to the plan. It takes account of the plan's deletions,
// which come first, and of its earlier writes.
func (c *checker) checkWrite(w agent.Write) *agent.Error {
	l, e := c.plan.files.locate(w.Path)
	clean := l.at
	switch {
	case e != nil:
		return e
	case c.isRoot(clean):
		return &agent.Error{Code: agent.ErrInvalid, Message: "is the workspace itself"}
	case l.directory && !w.Directory:
		return &agent.Error{Code: agent.ErrInvalid, Message: "ends in a slash, so it can only be a directory"}
	}
	c.writes = append(c.writes, clean)
	dir := path.Dir(clean)
	if e := c.parents(dir); e != nil {
		return e
	}
	at := c.directory(dir)
	switch {
	case at.fails != nil:
		copied := *at.fails
		return &copied
	case c.dirs[clean] && !w.Directory, c.files[clean] && w.Directory:
		return &agent.Error{Code: agent.ErrWrongType, Message: "is both a file and a directory in this update"}
	}
	if w.Directory {
		c.dirs[clean] = true
	} else {
		c.files[clean] = true
	}
	// The write replaces no entry, so there is no target to check.
	if !at.exists || c.deleted(clean) {
		return nil
	}
	return c.target(dir, path.Base(clean), w.Directory)
}

// parents records that dir and all directories above it will exist.
func (c *checker) parents(dir string) *agent.Error {
	for ; dir != "/"; dir = path.Dir(dir) {
		if c.files[dir] {
			return &agent.Error{Code: agent.ErrWrongType, Message: "is below a path that this update makes a file"}
		}
		if c.dirs[dir] {
			return nil
		}
		c.dirs[dir] = true
	}
	return nil
}

// target checks the entry that a write would replace.
func (c *checker) target(dir, name string, directory bool) *agent.Error {
	fd, err := c.plan.files.open(dir, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return pathError("", err)
	}
	defer func() { _ = unix.Close(fd) }()
	var stat unix.Stat_t
	switch err := unix.Fstatat(fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW); {
	case err == unix.ENOENT:
		return nil
	case err != nil:
		return pathError("", err)
	}
	isDirectory := stat.Mode&unix.S_IFMT == unix.S_IFDIR
	switch {
	case isDirectory && !directory:
		return &agent.Error{Code: agent.ErrWrongType, Message: "is a directory"}
	case !isDirectory && directory:
		return &agent.Error{Code: agent.ErrWrongType, Message: "exists and isn't a directory"}
	}
	return nil
}

// directory inspects a directory in which an entry will be written. It does so once for each directory.
func (c *checker) directory(dir string) *directory {
	if p := c.directories[dir]; p != nil {
		return p
	}
	p := c.inspect(dir)
	c.directories[dir] = p
	return p
}

// inspect does the work of directory for a directory that wasn't inspected before.
func (c *checker) inspect(dir string) *directory {
	// It will be created again, so only the directory above it matters.
	if c.deleted(dir) {
		return &directory{fails: c.directory(path.Dir(dir)).fails}
	}
	fd, err := c.plan.files.open(dir, unix.O_PATH|unix.O_DIRECTORY)
	if err == nil {
		defer func() { _ = unix.Close(fd) }()
		return &directory{exists: true, fails: writable(fd)}
	}
	if err == unix.ENOTDIR {
		return &directory{fails: &agent.Error{Code: agent.ErrWrongType, Message: "is below an entry that isn't a directory"}}
	}
	if err != unix.ENOENT {
		return &directory{fails: pathError("", err)}
	}
	above := c.directory(path.Dir(dir))
	if above.fails != nil || !above.exists {
		return &directory{fails: above.fails}
	}
	// It doesn't exist, or is a dangling link.
	if e := c.target(path.Dir(dir), path.Base(dir), true); e != nil {
		return &directory{fails: &agent.Error{Code: agent.ErrWrongType, Message: "is below an entry that isn't a directory"}}
	}
	return &directory{}
}
