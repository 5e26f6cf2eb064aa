package files

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime/paths"
)

// Default modes of files and directories that an update creates.
const (
	fileMode      = 0o644
	directoryMode = 0o755
)

// Update implements serve.Executor.
func (f *Files) Update(update agent.Update) (func(content func(i int) io.Reader) (agent.Updated, error), error) {
	if e := f.mayProtect(update.Protected); e != nil {
		return nil, e
	}
	var p *plan
	err := f.withRights(update.Protected, func() (err error) {
		p, err = f.check(update)
		return err
	})
	if err != nil {
		return nil, err
	}
	return p.apply, nil
}

// apply deletes, then writes. It reports failures and continues; only an error of a content ends
// it.
func (p *plan) apply(content func(i int) io.Reader) (agent.Updated, error) {
	updated := agent.Updated{Written: []string{}, Deleted: []string{}}
	protected := p.update.Protected
	if protected && slices.ContainsFunc(p.writes, func(at string) bool { return isBelow(at, p.files.workspace) }) {
		if err := own(unix.AT_FDCWD, p.files.workspace, true); err != nil {
			return updated, fmt.Errorf("protect the workspace: %w", err)
		}
	}
	failed := func(path string, err error) {
		e := changeError(path, protected, err)
		updated.Failed = append(updated.Failed, agent.Failure{Path: path, Code: e.Code, Message: e.Message})
	}
	for _, d := range p.deletes {
		var was bool
		err := p.files.withRights(protected, func() (err error) {
			was, err = p.files.remove(d)
			return err
		})
		switch {
		case err != nil:
			failed(d.text, err)
		case was:
			updated.Deleted = append(updated.Deleted, d.text)
		}
	}
	for i, w := range p.update.Write {
		var stat unix.Stat_t
		var err error
		if w.Directory {
			err = p.files.withRights(protected, func() error { return p.files.makeDirectory(p.writes[i], w.Mode, protected) })
		} else {
			stat, err = p.files.write(p.writes[i], w, protected, content(i))
		}
		if broken, ok := errors.AsType[*contentError](err); ok {
			return updated, broken.err
		}
		if err != nil {
			failed(w.Path, err)
			continue
		}
		updated.Written = append(updated.Written, w.Path)
		if len(p.update.Write)+len(p.update.Delete)+len(p.update.Empty) == 1 && !w.Directory {
			raw, _ := paths.Bytes(w.Path) // it was checked
			info := p.files.info(-1, "", raw, &stat)
			updated.File = &info
		}
	}
	return updated, nil
}

type contentError struct{ err error }

func (e *contentError) Error() string { return e.err.Error() }

// directory opens a directory. It creates the directory and its parents if they don't exist. Links
// are followed only in the existing part of the path, and not below the workspace if it is protected.
func (f *Files) directory(p string, protected bool) (int, error) {
	if !protected || !isBelow(p, f.workspace) {
		fd, err := f.open(p, unix.O_PATH|unix.O_DIRECTORY)
		if err == nil {
			if e := writable(fd); e != nil {
				_ = unix.Close(fd)
				return -1, unix.EACCES
			}
			return fd, nil
		}
		if err != unix.ENOENT || p == "/" {
			return -1, err
		}
	}
	above, err := f.directory(path.Dir(p), protected)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(above) }()
	return makeIn(above, path.Base(p), protected)
}

// makeIn creates a directory, or uses the existing one, and opens it. A protected one belongs to root
// then. If above is protected, too, commands can't replace it.
func makeIn(above int, name string, protected bool) (int, error) {
	err := unix.Mkdirat(above, name, directoryMode)
	if err != nil && err != unix.EEXIST {
		return -1, err
	}
	if protected {
		return protectIn(above, name, err == nil)
	}
	return openDirectoryIn(above, name, unix.O_PATH)
}

// protectIn gives a directory to root and opens it. User code can put another one in its place until
// then, so it tries again. A directory of root that wasn't just created is unchanged.
func protectIn(above int, name string, created bool) (int, error) {
	for range rounds {
		var stat, opened unix.Stat_t
		err := unix.Fstatat(above, name, &stat, unix.AT_SYMLINK_NOFOLLOW)
		switch {
		case err != nil:
			return -1, err
		case stat.Mode&unix.S_IFMT == unix.S_IFLNK:
			return -1, unix.ELOOP
		case created || stat.Uid != 0:
			created = false
			if err := own(above, name, true); err != nil {
				return -1, err
			}
			continue
		}
		// The kernel may have permitted a rename before. This fails only after it, because both lock above.
		_ = unix.Mkdirat(above, name, directoryMode)
		fd, err := openDirectoryIn(above, name, unix.O_PATH)
		if err != nil {
			return -1, err
		}
		if unix.Fstat(fd, &opened) == nil && opened.Dev == stat.Dev && opened.Ino == stat.Ino {
			return fd, nil
		}
		_ = unix.Close(fd)
	}
	return -1, unix.EACCES
}

func openDirectoryIn(above int, name string, flags uint64) (int, error) {
	return openat2(above, name, flags|unix.O_DIRECTORY|unix.O_NOFOLLOW, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
}

// makeDirectory creates a directory, or uses the existing one. A mode of 0 doesn't change that one.
func (f *Files) makeDirectory(p string, mode uint32, protected bool) error {
	above, err := f.directory(path.Dir(p), protected)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(above) }()
	fd, err := makeIn(above, path.Base(p), protected)
	if err != nil {
		return err
	}
	_ = unix.Close(fd)
	if mode == 0 {
		return nil
	}
	if protected {
		mode |= unix.S_ISVTX
	}
	// A descriptor opened with O_PATH doesn't allow fchmod(2).
	fd, err = openDirectoryIn(above, path.Base(p), unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.Fchmod(fd, mode)
}

// write replaces a file by rename, so that readers see the old or the new one, and returns its
// stat. After an error the old file is unchanged, because nothing can fail after the rename. User
// code can replace the new file immediately and, in a directory of its own, the temporary file
// before. Either is as if it had written there itself.
func (f *Files) write(p string, w agent.Write, protected bool, content io.Reader) (stat unix.Stat_t, err error) {
	var random [12]byte
	if _, err := unix.Getrandom(random[:], 0); err != nil {
		return stat, err
	}
	temporary := temporaryPrefix + hex.EncodeToString(random[:])
	dir, fd := -1, -1
	err = f.withRights(protected, func() (err error) {
		if dir, err = f.directory(path.Dir(p), protected); err == nil {
			// The mode keeps the file from other users until its content is complete.
			fd, err = unix.Openat(dir, temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		}
		return err
	})
	defer func() { _ = unix.Close(dir) }()
	if err != nil {
		return stat, err
	}
	// The content may arrive slowly, and a write needs no rights at an open file.
	err = fill(fd, w, content)
	if err == nil {
		err = f.withRights(protected, func() error { return unix.Fchmod(fd, cmp.Or(w.Mode, fileMode)) })
	}
	if err == nil {
		err = unix.Fstat(fd, &stat)
	}
	_ = unix.Close(fd)
	if err == nil {
		err = f.withRights(protected, func() error {
			awaitWriters(dir, temporary)
			return unix.Renameat(dir, temporary, dir, path.Base(p))
		})
	}
	remove := func() error { return unix.Unlinkat(dir, temporary, 0) }
	if err != nil && f.withRights(protected, remove) != nil {
		_ = remove()
	}
	return stat, err
}

// awaitWriters waits until no process has a file open for writing. Until then the kernel refuses to
// execute it (ETXTBSY). A child that starts meanwhile inherits the agent's descriptor until its
// exec, which follows soon. In a directory of its own user code can hold the file open forever, or
// put a pipe there. Then it is as if it had written there itself.
func awaitWriters(dir int, name string) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return // the agent may not read it
	}
	defer func() { _ = unix.Close(fd) }()
	for pause := 100 * time.Microsecond; pause < 200*time.Millisecond; pause *= 2 {
		// A lease for reading fails while there is a writer (fcntl(2)).
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK); err != unix.EAGAIN {
			_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
			return
		}
		<-time.After(pause)
	}
}

func fill(fd int, w agent.Write, content io.Reader) error {
	left := w.Size
	if left < 0 {
		left = math.MaxInt64 // up to the content's end
	}
	buf := make([]byte, min(max(left, 1), agent.MaxData))
	for left > 0 {
		n, err := content.Read(buf[:min(left, int64(len(buf)))])
		if err == io.EOF && w.Size < 0 {
			left = int64(n)
		} else if err != nil {
			return &contentError{err}
		}
		left -= int64(n)
		for data := buf[:n]; len(data) > 0; {
			n, err := unix.Write(fd, data)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return err
			}
			data = data[n:]
		}
	}
	return nil
}
