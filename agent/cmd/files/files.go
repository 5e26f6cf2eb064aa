// Package files reads, changes, searches and watches the runner's files, and finds its commands. It
// guarantees that no path leads out of the runner: the kernel resolves paths, never through the
// links of /proc.
//
// User code may change files at any moment. Then a call fails, or has an effect that the user code
// could have caused itself. So changes are made as the user of commands, except those that protect
// files from commands.
package files

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime/paths"
)

// Files are a runner's files. Its methods implement those of serve.Executor, and are safe
// for concurrent use.
type Files struct {
	root      int                      // descriptor of /
	workspace string                   // absolute and clean
	ownUser   bool                     // commands have a user of their own
	users     func() map[uint32]string // names, read once, because a runner's own files of them are read-only
	groups    func() map[uint32]string // the same
	foreign   *foreign                 // nil if all files are the runner's
	watched   atomic.Int64             // directories, by all watchers together
}

// New returns the files of a runner with this workspace. With ownUser, commands have a user of their
// own, who gets the workspace and the home directory. If own mount points are given, only the files
// on these belong to the runner. The agent accesses all other files with a command's rights.
func New(workspace, home string, ownUser bool, ownMounts ...string) (*Files, error) {
	f := &Files{workspace: path.Clean(workspace), ownUser: ownUser}
	f.users = sync.OnceValue(func() map[uint32]string { return readNames("/etc/passwd") })
	f.groups = sync.OnceValue(func() map[uint32]string { return readNames("/etc/group") })
	if ownUser {
		if err := own(unix.AT_FDCWD, f.workspace, false); err != nil {
			return nil, &os.PathError{Op: "own", Path: workspace, Err: err}
		}
		_ = unix.Mkdir(home, directoryMode) // impossible if an operator's job made /tmp read-only
		_ = own(unix.AT_FDCWD, home, false)
	}
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/: %w", err)
	}
	f.root = root
	if len(ownMounts) > 0 {
		f.foreign, err = foreignTo(ownMounts...)
	}
	return f, err
}

// maxHole is the maximum size of the holes of a sparse file that is read. A command can create a
// sparse file of a terabyte at no cost, and reading it would take hours.
const maxHole = 1 << 30

// A location is what a client's path means.
type location struct {
	raw       string // the path's bytes, as the client sent them
	at        string // absolute and clean
	directory bool   // it can only be a directory
}

func (f *Files) locate(p string) (location, *agent.Error) {
	raw, err := paths.Parse(p)
	if err != nil {
		return location{}, &agent.Error{Code: agent.ErrInvalid, Path: p, Message: err.Error()}
	}
	return location{raw, paths.Resolve(f.workspace, raw), paths.IsDirectory(raw)}, nil
}

// openPath opens a client's path with O_PATH. It follows a link at the path's end if follow is set,
// or if the path can only be a directory.
func (f *Files) openPath(p string, follow bool) (int, location, error) {
	l, e := f.locate(p)
	if e != nil {
		return -1, l, e
	}
	flags, at := uint64(unix.O_PATH), l.at
	switch {
	case l.directory:
		flags |= unix.O_DIRECTORY
	case !follow:
		flags |= unix.O_NOFOLLOW
	}
	fd, err := f.open(at, flags)
	if err != nil {
		return -1, l, pathError(p, err)
	}
	return fd, l, nil
}

// openDirectory opens a client's directory; "" is the workspace. A client can name entries below it by paths
// of at most longest bytes, relative to it.
func (f *Files) openDirectory(p string, flags uint64) (fd, longest int, err error) {
	l, e := f.locate(cmp.Or(p, "."))
	if e != nil {
		return -1, 0, e
	}
	if fd, err = f.open(l.at, flags|unix.O_DIRECTORY); err != nil {
		return -1, 0, pathError(p, err)
	}
	return fd, paths.MaxBytes - len(strings.TrimSuffix(l.at, "/")+"/"), nil
}

// open opens an absolute path and follows links.
func (f *Files) open(p string, flags uint64) (int, error) {
	return f.openIn(f.root, p, flags, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_MAGICLINKS)
}

// openIn opens the runner's files with the agent's rights, and all others with a command's.
func (f *Files) openIn(dir int, p string, flags, resolve uint64) (int, error) {
	fd, err := openat2(dir, p, flags, resolve)
	if err != nil || !f.foreign.has(fd) {
		return fd, err
	}
	_ = unix.Close(fd)
	return asCommand(func() (int, error) { return openat2(dir, p, flags, resolve) })
}

// openBelow opens a directory that was an entry of dir, or deeper. It never follows a link, even if one
// replaced the directory meanwhile, and opens no directory of the kernel, which may have endless
// contents.
func (f *Files) openBelow(dir int, p string, flags uint64) (int, error) {
	fd, err := f.openIn(dir, p, flags|unix.O_DIRECTORY|unix.O_NOFOLLOW, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
	if err == nil && pseudo(fd) {
		_ = unix.Close(fd)
		return -1, unix.EACCES
	}
	return fd, err
}

// at calls do with the rights that the agent has at an open file: its own at the runner's files, and
// a command's at all others.
func (f *Files) at(fd int, do func() (int, error)) (int, error) {
	if f.foreign.has(fd) {
		return asCommand(do)
	}
	return do()
}

// reopen opens a regular file for reading, which was opened with O_PATH.
func (f *Files) reopen(fd int) (int, error) {
	return f.at(fd, func() (int, error) {
		return unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	})
}

// openat2 calls openat2(2), and retries it when the kernel requests that.
func openat2(dir int, p string, flags, resolve uint64) (int, error) {
	if strings.IndexByte(p, 0) >= 0 {
		return -1, unix.EINVAL
	}
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve}
	for tries := 0; ; tries++ {
		fd, err := unix.Openat2(dir, p, &how)
		// EAGAIN: an element of the path was renamed meanwhile.
		if err == unix.EINTR || err == unix.EAGAIN && tries < 100 {
			continue
		}
		return fd, err
	}
}

// pseudo reports whether an open file is in a file system of the kernel, such as /proc.
func pseudo(fd int) bool {
	var stat unix.Statfs_t
	if unix.Fstatfs(fd, &stat) != nil {
		return true
	}
	switch stat.Type {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC,
		unix.DEVPTS_SUPER_MAGIC, unix.SECURITYFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.BPF_FS_MAGIC:
		return true
	}
	return false
}

// Stat implements serve.Executor.
func (f *Files) Stat(p string, follow bool) (agent.FileInfo, error) {
	fd, l, err := f.openPath(p, follow)
	if err != nil {
		return agent.FileInfo{}, err
	}
	defer func() { _ = unix.Close(fd) }()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return agent.FileInfo{}, pathError(p, err)
	}
	return f.info(fd, "", l.raw, &stat), nil
}

// Open implements serve.Executor.
func (f *Files) Open(p string) (agent.FileInfo, io.ReadSeekCloser, error) {
	// Open the file for reading only after it is known to be regular: opening a FIFO or a device
	// has effects.
	fd, l, err := f.openPath(p, true)
	if err != nil {
		return agent.FileInfo{}, nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return agent.FileInfo{}, nil, pathError(p, err)
	}
	switch {
	case stat.Mode&unix.S_IFMT == unix.S_IFDIR:
		return agent.FileInfo{}, nil, &agent.Error{Code: agent.ErrWrongType, Path: p, Message: "is a directory, not a file"}
	case stat.Mode&unix.S_IFMT != unix.S_IFREG:
		return agent.FileInfo{}, nil, &agent.Error{Code: agent.ErrWrongType, Path: p, Message: "isn't a regular file"}
	case pseudo(fd):
		return agent.FileInfo{}, nil, &agent.Error{Code: agent.ErrDenied, Path: p, Message: "is in a file system of the kernel, such as /proc, which can't be read"}
	case stat.Size-512*stat.Blocks > maxHole:
		return agent.FileInfo{}, nil, &agent.Error{Code: agent.ErrWrongType, Path: p, Message: "is a sparse file with more than 1 GiB of holes"}
	}
	content, err := f.reopen(fd)
	if err != nil {
		return agent.FileInfo{}, nil, pathError(p, err)
	}
	return f.info(fd, "", l.raw, &stat), os.NewFile(uintptr(content), "file"), nil
}

// info describes the entry name of the directory dir, which has this path; with an empty name, the
// open file dir itself.
func (f *Files) info(dir int, name, path string, stat *unix.Stat_t) agent.FileInfo {
	info := agent.FileInfo{
		Path:       []byte(path),
		Size:       stat.Size,
		ModifiedAt: modified(stat),
		Mode:       stat.Mode & 0o7777,
		Owner:      named(f.users(), stat.Uid),
		Group:      named(f.groups(), stat.Gid),
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		info.Type = "file"
	case unix.S_IFDIR:
		info.Type = "directory"
	case unix.S_IFLNK:
		info.Type = "link"
		info.LinkTarget = readLink(dir, name)
	default:
		info.Type = "other"
	}
	return info
}

// modified returns a file's time, within what JSON can say: the years 0 to 9999. A program can set any.
func modified(stat *unix.Stat_t) time.Time {
	const first, last = -62167219200, 253402300799
	seconds, nanoseconds := stat.Mtim.Unix()
	return time.Unix(min(max(seconds, first), last), nanoseconds).UTC()
}

func pathError(p string, err error) *agent.Error {
	e := &agent.Error{Path: p}
	switch err {
	case unix.ENOENT:
		e.Code, e.Message = agent.ErrNotFound, "no such file or directory"
	case unix.ENOTDIR:
		e.Code, e.Message = agent.ErrWrongType, "isn't a directory"
	case unix.EISDIR:
		e.Code, e.Message = agent.ErrWrongType, "is a directory"
	case unix.ELOOP:
		e.Code, e.Message = agent.ErrDenied, "the path has too many links, or one that isn't followed"
	case unix.EACCES, unix.EPERM:
		e.Code, e.Message = agent.ErrDenied, "permission denied"
	case unix.EROFS:
		e.Code, e.Message = agent.ErrDenied, "is in a read-only file system"
	case unix.EXDEV, unix.EBUSY:
		e.Code, e.Message = agent.ErrDenied, "is a mount point, or contains one"
	case unix.ENOSPC, unix.EDQUOT:
		e.Code, e.Message = agent.ErrFull, "no space left"
	case unix.ENAMETOOLONG:
		e.Code, e.Message = agent.ErrInvalid, "the path is too long"
	case unix.EINVAL:
		e.Code, e.Message = agent.ErrInvalid, "isn't a valid path"
	default:
		e.Code, e.Message = agent.ErrInternal, err.Error()
	}
	return e
}
