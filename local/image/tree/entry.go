package tree

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// maxID is the highest user id in a runner. nobody replaces higher ones.
const (
	maxID  = 1<<16 - 1
	nobody = 65534
)

// owner returns the uid or gid of a file, as ids of the runner.
func (t *Tree) owner(id int) int {
	if t.spec.Alone {
		return 0
	}
	if id < 0 || id > maxID {
		return nobody
	}
	return id
}

// mode returns the permissions of an entry, without setuid bits, and without setgid bits of files:
// they mean nothing in a runner, and must not take effect on the machine.
func mode(header *tar.Header) fs.FileMode {
	m := fs.FileMode(header.Mode & 0o777)
	if header.Typeflag == tar.TypeDir {
		if header.Mode&0o1000 != 0 {
			m |= fs.ModeSticky
		}
		if header.Mode&0o2000 != 0 {
			m |= fs.ModeSetgid
		}
	}
	return m
}

func (t *Tree) put(base string, header *tar.Header, content io.Reader) error {
	switch header.Typeflag {
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		return t.file(base, header, content)
	case tar.TypeDir:
		return t.directory(base, header)
	case tar.TypeSymlink:
		return t.symlink(base, header)
	case tar.TypeLink:
		return t.link(base, header)
	case tar.TypeFifo:
		return t.fifo(base, header)
	default:
		return fmt.Errorf("its type %q is unknown", header.Typeflag)
	}
}

// Make's room is called again after so many bytes or entries.
const (
	roomEvery        = 16 << 20
	RoomEveryEntries = 1 << 10
)

func (t *Tree) checkRoom() error {
	if t.written-t.checked.written < roomEvery && t.entries-t.checked.entries < RoomEveryEntries {
		return nil
	}
	t.checked.written, t.checked.entries = t.written, t.entries
	return t.room()
}

// fill calls room between parts: one file can fill a disk, and a sparse one is small in the layer.
func (t *Tree) fill(file io.Writer, content io.Reader) error {
	for {
		if _, err := io.CopyN(file, content, roomEvery); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := t.room(); err != nil {
			return err
		}
	}
}

func (t *Tree) file(base string, header *tar.Header, content io.Reader) (err error) {
	if header.Size > t.spec.Limits.Bytes-t.written {
		return TooLarge("it takes more than %s", FormatSize(t.spec.Limits.Bytes))
	}
	t.written += header.Size
	if err := t.checkRoom(); err != nil {
		return err
	}
	file, err := t.parent.OpenFile(base, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := t.fill(file, content); err != nil {
		return err
	}
	if err := t.describe(file, header); err != nil {
		return err
	}
	return t.parent.Chtimes(base, header.ModTime, header.ModTime)
}

// directory makes a directory, or changes an existing one to what the entry says.
func (t *Tree) directory(base string, header *tar.Header) error {
	if err := t.parent.Mkdir(base, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	dir, err := t.parent.Open(base)
	if err != nil {
		return err
	}
	defer dir.Close()
	t.keepTime(path.Join(t.at, base), header.ModTime)
	return t.describe(dir, header)
}

// symlink makes a symbolic link with any target: it is followed only inside a runner.
func (t *Tree) symlink(base string, header *tar.Header) error {
	if err := t.parent.Symlink(header.Linkname, base); err != nil {
		return err
	}
	return t.parent.Lchown(base, t.owner(header.Uid), t.owner(header.Gid))
}

func (t *Tree) link(base string, header *tar.Header) error {
	target, err := local(header.Linkname)
	if err != nil {
		return err
	}
	dir, name := path.Split(target)
	if dir, err = t.follow(path.Clean(dir), false); err != nil {
		return err
	}
	target = path.Join(dir, name)
	info, err := t.root.Lstat(target)
	if err != nil {
		return fmt.Errorf("find the target of the link: %w", err)
	}
	if info.IsDir() {
		return errors.New("it links to a directory")
	}
	return t.root.Link(target, path.Join(t.at, base))
}

func (t *Tree) fifo(base string, header *tar.Header) error {
	dir, err := t.parent.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Mkfifoat(int(dir.Fd()), base, 0o600); err != nil {
		return err
	}
	if err := t.parent.Lchown(base, t.owner(header.Uid), t.owner(header.Gid)); err != nil {
		return err
	}
	return unix.Fchmodat(int(dir.Fd()), base, uint32(mode(header)), 0) // nobody else changes the directory
}

// describe sets a file's or directory's owner, mode and extended attributes. Of these it sets only those
// of the namespace user: others give privileges, or belong to another machine's security module.
func (t *Tree) describe(file *os.File, header *tar.Header) error {
	if err := file.Chown(t.owner(header.Uid), t.owner(header.Gid)); err != nil {
		return err
	}
	if err := file.Chmod(mode(header)); err != nil {
		return err
	}
	for key, value := range header.PAXRecords {
		name, ok := strings.CutPrefix(key, "SCHILY.xattr.")
		if !ok || !strings.HasPrefix(name, "user.") {
			continue
		}
		err := unix.Fsetxattr(int(file.Fd()), name, []byte(value), 0)
		if errors.Is(err, unix.ENOSPC) && t.room() == nil { // ext4 returns this for an attribute larger than a block
			return fmt.Errorf("its attribute %.100q is too large for this machine's file system", name)
		}
		if err != nil && !errors.Is(err, unix.ENOTSUP) { // without support, runners see no attributes
			return fmt.Errorf("set its attribute %.100q: %w", name, err)
		}
	}
	return nil
}
