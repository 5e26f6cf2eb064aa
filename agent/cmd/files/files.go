// Package files reads and changes the files of the runner that the agent is in, and finds the
// commands there. The kernel resolves paths, never through the links of /proc that lead out of
// the runner. User code may change everything meanwhile: then a call fails, or does what the user
// code could have done itself.
package files

import (
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

// Files are a runner's files. It is a serve.Files, and its methods are safe for concurrent use.
type Files struct {
	root      int    // descriptor of /
	workspace string // absolute and clean
	names     names
	foreign   *foreign     // nil: all are the runner's
	watched   atomic.Int64 // directories, by all that watch
}

// New returns the files of a runner whose workspace this is. If there are own mount points, only
// the files on these are the runner's; the agent touches all others with a command's rights.
func New(workspace string, own ...string) (*Files, error) {
	f := &Files{workspace: path.Clean(workspace)}
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/: %w", err)
	}
	f.root = root
	if len(own) > 0 {
		f.foreign, err = foreignTo(own...)
	}
	return f, err
}

// maxHole is how much of a file that is read may be missing on disk: a command
// makes a file of a terabyte for nothing, and reading it would take hours.
const maxHole = 1 << 30

// absolute returns the path that a client's path means.
func (f *Files) absolute(p string) string {
	if strings.HasPrefix(p, "/") {
		return p
	}
	return f.workspace + "/" + p
}

// open opens an absolute path, following links.
func (f *Files) open(p string, flags uint64) (int, error) {
	return f.openIn(f.root, p, flags, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_MAGICLINKS)
}

// openIn opens what is the runner's as the agent, and all else as a command
// would.
func (f *Files) openIn(dir int, p string, flags, resolve uint64) (int, error) {
	fd, err := openat2(dir, p, flags, resolve)
	if err != nil || !f.foreign.has(fd) {
		return fd, err
	}
	_ = unix.Close(fd)
	return asCommand(func() (int, error) { return openat2(dir, p, flags, resolve) })
}

// reopen opens a regular file for reading that is open without.
func (f *Files) reopen(fd int) (int, error) {
	again := func() (int, error) {
		return unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	}
	if f.foreign.has(fd) {
		return asCommand(again)
	}
	return again()
}

func openat2(dir int, p string, flags, resolve uint64) (int, error) {
	if strings.IndexByte(p, 0) >= 0 {
		return -1, unix.EINVAL
	}
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve}
	for tries := 0; ; tries++ {
		fd, err := unix.Openat2(dir, p, &how)
		// EAGAIN: something on the way was renamed meanwhile.
		if err == unix.EINTR || err == unix.EAGAIN && tries < 100 {
			continue
		}
		return fd, err
	}
}

// pseudo reports whether a descriptor lies in a file system that is a view of
// the kernel.
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

// Stat implements serve.Files.
func (f *Files) Stat(p string) (agent.FileInfo, error) {
	fd, err := f.open(f.absolute(p), unix.O_PATH)
	if err != nil {
		return agent.FileInfo{}, pathError(p, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return agent.FileInfo{}, pathError(p, err)
	}
	return f.info(p, &stat), nil
}

// Open implements serve.Files.
func (f *Files) Open(p string) (agent.FileInfo, io.ReadSeekCloser, error) {
	// Only when it is known to be a regular file is it opened for reading: that
	// alone would do something to a FIFO or a device.
	fd, err := f.open(f.absolute(p), unix.O_PATH)
	if err != nil {
		return agent.FileInfo{}, nil, pathError(p, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return agent.FileInfo{}, nil, pathError(p, err)
	}
	switch {
	case stat.Mode&unix.S_IFMT == unix.S_IFDIR:
		return agent.FileInfo{}, nil, &agent.Error{Code: agent.ErrWrongType, Path: p, Message: "a directory, not a file"}
	case stat.Mode&unix.S_IFMT != unix.S_IFREG:
		return agent.FileInfo{}, nil, &agent.Error{Code: agent.ErrWrongType, Path: p, Message: "not a regular file"}
	case pseudo(fd):
		return agent.FileInfo{}, nil, &agent.Error{Code: agent.ErrDenied, Path: p, Message: "not a file but a view of the kernel"}
	case stat.Size-512*stat.Blocks > maxHole:
		return agent.FileInfo{}, nil, &agent.Error{Code: agent.ErrWrongType, Path: p, Message: "a sparse file, most of which isn't there"}
	}
	content, err := f.reopen(fd)
	if err != nil {
		return agent.FileInfo{}, nil, pathError(p, err)
	}
	return f.info(p, &stat), os.NewFile(uintptr(content), "file"), nil
}

// info describes an entry.
func (f *Files) info(p string, stat *unix.Stat_t) agent.FileInfo {
	info := agent.FileInfo{
		Path:       []byte(p),
		Size:       stat.Size,
		ModifiedAt: modified(stat),
		Mode:       stat.Mode & 0o7777,
		Owner:      f.names.user(stat.Uid),
		Group:      f.names.group(stat.Gid),
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		info.Type = "file"
	case unix.S_IFDIR:
		info.Type = "directory"
	case unix.S_IFLNK:
		info.Type = "link"
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

// pathError converts an errno about a path for the client.
func pathError(p string, err error) *agent.Error {
	e := &agent.Error{Path: p}
	switch err {
	case unix.ENOENT:
		e.Code, e.Message = agent.ErrNotFound, "no such file or directory"
	case unix.ENOTDIR:
		e.Code, e.Message = agent.ErrWrongType, "not a directory"
	case unix.EISDIR:
		e.Code, e.Message = agent.ErrWrongType, "a directory"
	case unix.ELOOP:
		e.Code, e.Message = agent.ErrDenied, "leads through too many links, or through one that isn't followed"
	case unix.EACCES, unix.EPERM:
		e.Code, e.Message = agent.ErrDenied, "permission denied"
	case unix.EROFS:
		e.Code, e.Message = agent.ErrDenied, "the place is read-only"
	case unix.EXDEV, unix.EBUSY:
		e.Code, e.Message = agent.ErrDenied, "holds a mounted file system"
	case unix.ENOSPC, unix.EDQUOT:
		e.Code, e.Message = agent.ErrFull, "no room left"
	case unix.ENAMETOOLONG:
		e.Code, e.Message = agent.ErrInvalid, "the path is too long"
	case unix.EINVAL:
		e.Code, e.Message = agent.ErrInvalid, "not a valid path"
	default:
		e.Code, e.Message = agent.ErrInternal, err.Error()
	}
	return e
}

// clean returns the absolute path without ".", ".." and repeated slashes, for
// paths whose meaning must not depend on what is there.
func (f *Files) clean(p string) string { return path.Clean(f.absolute(p)) }
