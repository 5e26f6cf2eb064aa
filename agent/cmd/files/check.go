package files

import (
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

// maxPaths is how many paths one update may name.
const maxPaths = 10_000

// A plan is an update that was checked: its paths absolute and clean.
type plan struct {
	files   *Files
	update  agent.Update
	deletes []deletion
	writes  []string
}

// A deletion is a path that goes, or everything in it.
type deletion struct {
	path   string
	inside bool
}

// covers reports whether p is gone after the deletion.
func (d deletion) covers(p string) bool {
	return !d.inside && p == d.path || isBelow(p, d.path)
}

func isBelow(p, dir string) bool {
	return strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/") && len(p) > len(dir)
}

// A checker finds out what an update would do, and touches nothing. User code may change
// everything between the check and the update: the check is for honest mistakes, and what goes
// wrong later is reported as a failure.
type checker struct {
	plan
	workspace unix.Stat_t
	places    map[string]*place // directories that were inspected
	files     map[string]bool   // paths that become files
	dirs      map[string]bool   // paths that become directories
}

// A place is a directory that is there, or will be made.
type place struct {
	exists bool
	fails  *agent.Error // why nothing can be put there
}

// check returns the plan for an update, or the first error in it.
func (f *Files) check(update agent.Update) (*plan, error) {
	if n := len(update.Delete) + len(update.Write); n > maxPaths {
		return nil, &agent.Error{Code: agent.ErrTooMany, Field: "write", Message: "more than 10000 paths in one update"}
	}
	c := &checker{plan: plan{files: f, update: update}, places: map[string]*place{}, files: map[string]bool{}, dirs: map[string]bool{}}
	if err := unix.Stat(f.workspace, &c.workspace); err != nil {
		return nil, pathError(f.workspace, err)
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

// cleanPath returns an absolute path, and refuses what can't be one. A slash at the end is no
// part of a name.
func (c *checker) cleanPath(p string) (string, *agent.Error) {
	switch {
	case p == "":
		return "", &agent.Error{Code: agent.ErrInvalid, Message: "the path is empty"}
	case strings.IndexByte(p, 0) >= 0:
		return "", &agent.Error{Code: agent.ErrInvalid, Message: "the path holds a NUL"}
	case len(p) >= unix.PathMax:
		return "", &agent.Error{Code: agent.ErrInvalid, Message: "the path is too long"}
	}
	clean := c.plan.files.clean(p)
	for element := range strings.SplitSeq(clean, "/") {
		if len(element) > unix.NAME_MAX {
			return "", &agent.Error{Code: agent.ErrInvalid, Message: "a name in the path is longer than 255 bytes"}
		}
	}
	return clean, nil
}

// isRoot reports whether a path is the workspace, or holds it.
func (c *checker) isRoot(p string) bool {
	return p == "/" || p == c.plan.files.workspace || isBelow(c.plan.files.workspace, p)
}

func (c *checker) checkDelete(p string) *agent.Error {
	clean, e := c.cleanPath(p)
	if e != nil {
		return e
	}
	d := deletion{path: clean}
	if path.Base(clean) == "*" {
		d = deletion{path: path.Dir(clean), inside: true}
	}
	if c.isRoot(d.path) && !(d.inside && d.path == c.plan.files.workspace) {
		return &agent.Error{Code: agent.ErrInvalid, Message: "would delete the workspace itself"}
	}
	c.deletes = append(c.deletes, d)
	if d.inside {
		fd, err := c.plan.files.open(d.path, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return absent(p, err)
		}
		defer func() { _ = unix.Close(fd) }()
		return writable(fd)
	}
	fd, err := c.plan.files.open(path.Dir(d.path), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return absent(p, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var stat unix.Stat_t
	if err := unix.Fstatat(fd, path.Base(d.path), &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return absent(p, err)
	}
	if stat.Dev == c.workspace.Dev && stat.Ino == c.workspace.Ino {
		return &agent.Error{Code: agent.ErrInvalid, Message: "would delete the workspace itself"}
	}
	return writable(fd)
}

// absent returns nil for an error that says that there is nothing to delete.
func absent(p string, err error) *agent.Error {
	if err == unix.ENOENT || err == unix.ENOTDIR {
		return nil
	}
	return pathError(p, err)
}

// writable returns why nothing can be changed in a directory; nil if it can.
func writable(fd int) *agent.Error {
	var stat unix.Statfs_t
	if err := unix.Fstatfs(fd, &stat); err != nil {
		return pathError("", err)
	}
	at := string(readLink(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd)))
	switch {
	case stat.Flags&unix.ST_RDONLY != 0:
		return pathError("", unix.EROFS)
	case pseudo(fd), at == "/dev", isBelow(at, "/dev"), at == "/proc", isBelow(at, "/proc"), at == "/sys", isBelow(at, "/sys"):
		return &agent.Error{Code: agent.ErrDenied, Message: "no place for files"}
	}
	return nil
}

// deleted reports whether the update deletes what is at p.
func (c *checker) deleted(p string) bool {
	for _, d := range c.deletes {
		if d.covers(p) {
			return true
		}
	}
	return false
}

func (c *checker) checkWrite(w agent.Write) *agent.Error {
	clean, e := c.cleanPath(w.Path)
	if e != nil {
		return e
	}
	if c.isRoot(clean) {
		return &agent.Error{Code: agent.ErrInvalid, Message: "is the workspace itself"}
	}
	c.writes = append(c.writes, clean)
	dir := path.Dir(clean)
	if e := c.parents(dir); e != nil {
		return e
	}
	at := c.place(dir)
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
	if !at.exists || c.deleted(clean) {
		return nil
	}
	return c.target(dir, path.Base(clean), w.Directory)
}

// parents notes that dir and all above it become directories.
func (c *checker) parents(dir string) *agent.Error {
	for ; dir != "/"; dir = path.Dir(dir) {
		if c.files[dir] {
			return &agent.Error{Code: agent.ErrWrongType, Message: "lies below a file of this update"}
		}
		if c.dirs[dir] {
			return nil
		}
		c.dirs[dir] = true
	}
	return nil
}

// target checks what a write would replace.
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
		return &agent.Error{Code: agent.ErrWrongType, Message: "is there and no directory"}
	}
	return nil
}

// place inspects a directory that something is written into, once.
func (c *checker) place(dir string) *place {
	if p := c.places[dir]; p != nil {
		return p
	}
	p := c.inspect(dir)
	c.places[dir] = p
	return p
}

func (c *checker) inspect(dir string) *place {
	if c.deleted(dir) {
		return &place{fails: c.place(path.Dir(dir)).fails}
	}
	fd, err := c.plan.files.open(dir, unix.O_PATH|unix.O_DIRECTORY)
	if err == nil {
		defer func() { _ = unix.Close(fd) }()
		return &place{exists: true, fails: writable(fd)}
	}
	if err == unix.ENOTDIR {
		return &place{fails: &agent.Error{Code: agent.ErrWrongType, Message: "lies below something that is no directory"}}
	}
	if err != unix.ENOENT {
		return &place{fails: pathError("", err)}
	}
	above := c.place(path.Dir(dir))
	if above.fails != nil || !above.exists {
		return &place{fails: above.fails}
	}
	// Nothing there, or a link that leads nowhere.
	if e := c.target(path.Dir(dir), path.Base(dir), true); e != nil {
		return &place{fails: &agent.Error{Code: agent.ErrWrongType, Message: "lies below something that is no directory"}}
	}
	return &place{}
}
