package files

import (
	"path"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

// Move implements serve.Executor. The kernel renames the entry atomically, or changes nothing.
func (f *Files) Move(move agent.Move) (info agent.FileInfo, err error) {
	if e := f.mayProtect(move.Protected); e != nil {
		return agent.FileInfo{}, e
	}
	err = f.withRights(move.Protected, func() error {
		info, err = f.move(move)
		return err
	})
	return info, err
}

// move is Move with the rights of this thread.
func (f *Files) move(move agent.Move) (agent.FileInfo, error) {
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
	info := f.info(from.dir, from.name, to.raw, &stat)
	for field, end := range map[string]end{"from": from, "to": to} {
		if end.directory && info.Type != "directory" {
			return agent.FileInfo{}, &agent.Error{Code: agent.ErrWrongType, Field: field, Path: end.raw, Message: "ends in a slash, but the entry isn't a directory"}
		}
	}
	if isBelow(to.at, from.at) {
		return agent.FileInfo{}, &agent.Error{Code: agent.ErrInvalid, Field: "to", Path: move.To, Message: "is inside the directory that is moved"}
	}
	// It replaces no entry. It stays within a mount, so that both ends have the same rights.
	if _, err := f.at(from.dir, func() (int, error) {
		return 0, unix.Renameat2(from.dir, from.name, to.dir, to.name, unix.RENAME_NOREPLACE)
	}); err != nil {
		return agent.FileInfo{}, moveError(move, err)
	}
	return info, nil
}

// An end is the source or the target of a move: a name in an open directory.
type end struct {
	location
	dir  int // descriptor of the parent directory
	name string
}

func (e end) close() { _ = unix.Close(e.dir) }

// end opens the parent directory of a path, if files can be changed there.
func (c *checker) end(p string) (end, *agent.Error) {
	l, e := c.plan.files.locate(p)
	switch {
	case e != nil:
		return end{}, e
	case c.isRoot(l.at):
		return end{}, &agent.Error{Code: agent.ErrInvalid, Message: "is the workspace itself"}
	}
	fd, err := c.plan.files.open(path.Dir(l.at), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return end{}, pathError(p, err)
	}
	if e := writable(fd); e != nil {
		_ = unix.Close(fd)
		return end{}, e
	}
	return end{l, fd, path.Base(l.at)}, nil
}

func moveError(move agent.Move, err error) *agent.Error {
	switch err {
	case unix.EEXIST:
		return &agent.Error{Code: agent.ErrDenied, Field: "to", Path: move.To, Message: "already exists, and a move never replaces an entry: delete it first"}
	case unix.EXDEV:
		return &agent.Error{Code: agent.ErrDenied, Field: "to", Path: move.To, Message: "is in another file system: copy the entry, and delete the old one"}
	case unix.EINVAL, unix.ENOSYS:
		return &agent.Error{Code: agent.ErrDenied, Field: "to", Path: move.To, Message: "this file system doesn't support moves that never replace, or a link leads into the moved directory"}
	}
	return changeError(move.From, move.Protected, err)
}
