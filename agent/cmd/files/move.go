package files

import (
	"path"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

// Move implements serve.Files. The kernel gives the entry its new name in one step, or changes nothing.
func (f *Files) Move(move agent.Move) (agent.FileInfo, error) {
	c := &checker{plan: plan{files: f}}
	if err := unix.Stat(f.workspace, &c.workspace); err != nil {
		return agent.FileInfo{}, pathError(f.workspace, err)
	}
	from, e := c.end(move.From)
	if e != nil {
		e.Field, e.Path = "from", move.From
		return agent.FileInfo{}, e
	}
	defer from.close()
	to, e := c.end(move.To)
	if e != nil {
		e.Field, e.Path = "to", move.To
		return agent.FileInfo{}, e
	}
	defer to.close()
	var stat unix.Stat_t
	if err := unix.Fstatat(from.dir, from.name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return agent.FileInfo{}, pathError(move.From, err)
	}
	if stat.Dev == c.workspace.Dev && stat.Ino == c.workspace.Ino {
		return agent.FileInfo{}, &agent.Error{Code: agent.ErrInvalid, Field: "from", Path: move.From, Message: "is the workspace itself"}
	}
	info := f.info(move.To, &stat)
	if info.Type == "link" {
		info.LinkTarget = readLink(from.dir, from.name)
	}
	if isBelow(to.path, from.path) {
		return agent.FileInfo{}, &agent.Error{Code: agent.ErrInvalid, Field: "to", Path: move.To, Message: "is inside of what is moved"}
	}
	if err := f.rename(from, to); err != nil {
		return agent.FileInfo{}, moveError(move, err)
	}
	return info, nil
}

// An end of a move is a name in a directory that is open.
type end struct {
	dir  int
	name string
	path string // absolute and clean; its links aren't followed
}

func (e end) close() { _ = unix.Close(e.dir) }

// end opens the directory that a path is in, where files can be changed.
func (c *checker) end(p string) (end, *agent.Error) {
	clean, e := c.cleanPath(p)
	switch {
	case e != nil:
		return end{}, e
	case c.isRoot(clean):
		return end{}, &agent.Error{Code: agent.ErrInvalid, Message: "is the workspace itself"}
	}
	fd, err := c.plan.files.open(path.Dir(clean), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return end{}, pathError(p, err)
	}
	if e := writable(fd); e != nil {
		_ = unix.Close(fd)
		return end{}, e
	}
	return end{fd, path.Base(clean), clean}, nil
}

// rename replaces nothing. It doesn't leave a mount, so that the rights are the same at both ends.
func (f *Files) rename(from, to end) error {
	do := func() (int, error) {
		return 0, unix.Renameat2(from.dir, from.name, to.dir, to.name, unix.RENAME_NOREPLACE)
	}
	var err error
	if f.foreign.has(from.dir) {
		_, err = asCommand(do)
	} else {
		_, err = do()
	}
	return err
}

func moveError(move agent.Move, err error) *agent.Error {
	switch err {
	case unix.EEXIST:
		return &agent.Error{Code: agent.ErrDenied, Field: "to", Path: move.To, Message: "is there already, and a move replaces nothing"}
	case unix.EXDEV:
		return &agent.Error{Code: agent.ErrDenied, Field: "to", Path: move.To, Message: "is in another file system"}
	case unix.EINVAL, unix.ENOSYS:
		return &agent.Error{Code: agent.ErrDenied, Field: "to", Path: move.To, Message: "this file system can't move a file without replacing, or a link leads into what is moved"}
	}
	return pathError(move.From, err)
}
