// Package tree makes an image's root directory: it applies the layers beneath an os.Root, and adds
// what runners need. No layer can write outside the directory or exceed the limits.
package tree

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Limits are the limits of one image.
type Limits struct {
	Bytes   int64 // of all layers, unpacked, including files that a later layer deletes
	Entries int   // files, directories and links in all layers
}

const maxPath = 4096

// An unpacker applies an image's layers, in order, to a directory that nobody else changes
// meanwhile. It makes every change beneath root. One goroutine uses it.
type unpacker struct {
	root   *os.Root
	limits Limits
	alone  bool         // all files belong to root: there are no other users
	room   func() error // returns an error if disk space or time is used up

	stream  int64 // bytes read of the layers, uncompressed
	written int64 // bytes of files; sparse files take less of the stream
	entries int
	checked struct { // values at the last call of room
		written int64
		entries int
	}

	parent  *os.Root // directory of the latest entry; nil: none
	dir     string   // its name in the layer
	at      string   // its path without links
	seed    maphash.Seed
	layered map[uint64]bool      // hashes of the paths that this layer has created
	times   map[string]time.Time // of directories; set at the end, because entries change them
	naming  int                  // bytes of the names in times
}

// A Tree is an image's root directory in the making. One goroutine uses it.
type Tree struct {
	*unpacker
	skeleton Skeleton
}

// Make makes an empty one at a path. With alone, all files belong to this process's user, which
// can't give them away. It calls room from time to time with the bytes that the tree takes on the
// disk; an error of room ends the work.
func Make(at string, limits Limits, skeleton Skeleton, alone bool, room func(taken int64) error) (*Tree, error) {
	if err := os.Mkdir(at, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		return nil, err
	}
	if err := root.Chmod(".", 0o755); err != nil { // regardless of the umask
		return nil, errors.Join(err, root.Close())
	}
	t := &Tree{skeleton: skeleton}
	t.unpacker = newUnpacker(root, limits, func() error { return room(t.Disk()) })
	t.alone = alone
	return t, nil
}

// Finish turns the unpacked layers into a root directory for runners, whose programs run as the
// image's user.
func (t *Tree) Finish(ctx context.Context, user, workingDirectory string) error {
	if err := t.prepare(ctx, t.skeleton, user, workingDirectory); err != nil {
		return err
	}
	return t.endTimes()
}

// Disk returns about the bytes that the tree takes on the disk by now.
func (t *Tree) Disk() int64 { return t.written + int64(t.entries)<<10 }

// Close releases the directory. It may be called again.
func (t *Tree) Close() error { return t.root.Close() }

func newUnpacker(root *os.Root, limits Limits, room func() error) *unpacker {
	return &unpacker{root: root, limits: limits, room: room, seed: maphash.MakeSeed(), times: map[string]time.Time{}}
}

// Layer applies a layer, an uncompressed tar archive, and reads it to its end.
func (u *unpacker) Layer(ctx context.Context, content io.Reader) error {
	u.layered = map[uint64]bool{}
	defer u.leave()
	content = &metered{func() error { return context.Cause(ctx) }, content, u}
	reader := tar.NewReader(content)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Explain(ctx, "", err)
		}
		if u.entries++; u.entries > u.limits.Entries {
			return TooLarge("it has more than %d files", u.limits.Entries)
		}
		if err := u.checkRoom(); err != nil {
			return Explain(ctx, header.Name, err)
		}
		if err := u.apply(header, reader); err != nil {
			return Explain(ctx, header.Name, err)
		}
	}
	// The archive can end before the layer does. The caller's digest covers the whole layer.
	_, err := io.Copy(io.Discard, content)
	return Explain(ctx, "", err)
}

// Explain adds the entry's name to an error. Known errors of the machine stay as they are; all
// others are the image's and become INVALID_INPUT.
func Explain(ctx context.Context, entry string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case HasMessage(err) || IsFull(err):
		return err
	case errors.Is(err, unix.EIO), errors.Is(err, unix.EROFS), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("unpack %q: %w", entry, err)
	case entry != "":
		return Invalid(fmt.Sprintf("its entry %.200q can't be unpacked: %s", entry, reason(err)), err)
	}
	return Invalid("a layer can't be read", err)
}

// reason returns the text of an error without paths of the machine.
func reason(err error) string {
	var at *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &at):
		return at.Err.Error()
	case errors.As(err, &link):
		return link.Err.Error()
	}
	return err.Error()
}

func (u *unpacker) apply(header *tar.Header, content io.Reader) error {
	switch header.Typeflag {
	case tar.TypeXGlobalHeader, tar.TypeChar, tar.TypeBlock:
		return nil // a runner has its own devices; these would be the machine's
	}
	name, err := local(header.Name)
	if err != nil {
		return err
	}
	if name == "." {
		return u.top(header)
	}
	dir, base := path.Split(name)
	if dir = path.Clean(dir); strings.HasPrefix(base, whiteout) {
		return u.whiteOut(dir, base)
	}
	if err := u.enter(dir, true); err != nil {
		return err
	}
	u.layered[u.hash(path.Join(u.at, base))] = true
	info, err := u.parent.Lstat(base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case info.IsDir() && header.Typeflag == tar.TypeDir:
	default:
		if err := u.parent.RemoveAll(base); err != nil {
			return err
		}
		if info.IsDir() || info.Mode()&fs.ModeSymlink != 0 {
			defer u.leave() // the path of the latest directory may have changed
		}
	}
	return u.put(base, header, content)
}

// top sets the owner and mode of the root directory from a layer. Every user may enter it, because
// not only root runs programs.
func (u *unpacker) top(header *tar.Header) error {
	if header.Typeflag != tar.TypeDir {
		return errors.New("it is the root directory's entry, but isn't a directory")
	}
	if err := u.root.Lchown(".", u.owner(header.Uid), u.owner(header.Gid)); err != nil {
		return err
	}
	return u.root.Chmod(".", mode(header)|0o555)
}

// local returns an entry's name as a path relative to the root. A name with ".." is an error.
func local(name string) (string, error) {
	if len(name) > maxPath {
		return "", fmt.Errorf("its name is too long: %d bytes", len(name))
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", errors.New("it leads out of the image")
		}
	}
	return path.Clean("./" + path.Clean("/"+name)), nil
}

// endTimes sets the times of directories, which creating entries in them has changed.
func (u *unpacker) endTimes() error {
	for name, at := range u.times {
		info, err := u.root.Lstat(name)
		if err != nil || !info.IsDir() {
			continue // another layer has replaced or deleted it
		}
		if err := u.root.Chtimes(name, at, at); err != nil {
			return err
		}
	}
	return nil
}

// maxNaming bounds the memory of names in times, in bytes: about ten times what real images need.
// Times of further directories aren't set.
const maxNaming = 32 << 20

// endTime keeps the time of a directory for endTimes, within maxNaming.
func (u *unpacker) endTime(name string, at time.Time) {
	if u.naming += len(name); u.naming <= maxNaming {
		u.times[name] = at
	}
}

func (u *unpacker) hash(name string) uint64 { return maphash.String(u.seed, name) }

// A metered reader reads a layer. It returns an error when the unpacking must end, or when the
// layer exceeds the limit.
type metered struct {
	ended func() error // returns nil to continue
	layer io.Reader
	u     *unpacker
}

// Read implements io.Reader.
func (m *metered) Read(p []byte) (int, error) {
	if err := m.ended(); err != nil {
		return 0, err
	}
	n, err := m.layer.Read(p)
	if m.u.stream += int64(n); m.u.stream > m.u.limits.Bytes {
		return n, TooLarge("it takes more than %s", FormatSize(m.u.limits.Bytes))
	}
	return n, err
}
