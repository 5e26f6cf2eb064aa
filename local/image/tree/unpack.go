// Package tree makes an image's root directory: it applies the layers beneath an
// os.Root, whatever they say, and puts what runners need in its place.
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

	"github.com/rockpool/rockpool/local/image/fault"
)

// Limits bound what one image may take.
type Limits struct {
	Bytes   int64 // of all its layers, unpacked; what a later layer deletes counts
	Entries int   // files, directories and links in all its layers
}

// maxPath is the kernel's, for a path at once.
const maxPath = 4096

// An unpacker applies an image's layers, one after the other, to a directory
// that nobody else changes meanwhile. Every change is made beneath root, whatever
// a layer says.
type unpacker struct {
	root   *os.Root
	limits Limits
	alone  bool         // all files are root's: there is nobody else
	room   func() error // whether there is still any on the disk, and time; asked every so often

	stream  int64 // bytes that were read of the layers, unpacked
	written int64 // bytes of files; sparse ones have more than they take of the stream
	entries int
	checked struct { // these two, when room was asked last
		written int64
		entries int
	}

	parent  *os.Root // the directory of the latest entry; nil: none
	dir     string   // its name, as the layer writes it
	at      string   // and as it is, without links
	seed    maphash.Seed
	layered map[uint64]bool      // hashes of the paths that this layer has made
	times   map[string]time.Time // of directories, set when nothing more is put into them
	naming  int                  // bytes that the names in times take
}

// A Tree is an image's root directory that is being made.
type Tree struct {
	*unpacker
	skeleton Skeleton
}

// Make makes an empty one at a path. With alone all files are the process's: it may
// give them to nobody else. Room is called every so often, with about what the tree
// takes on the disk by then; its error ends the work.
func Make(at string, limits Limits, skeleton Skeleton, alone bool, room func(taken int64) error) (*Tree, error) {
	if err := os.Mkdir(at, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		return nil, err
	}
	if err := root.Chmod(".", 0o755); err != nil { // whatever the umask
		return nil, errors.Join(err, root.Close())
	}
	t := &Tree{skeleton: skeleton}
	t.unpacker = newUnpacker(root, limits, func() error { return room(t.Disk()) })
	t.alone = alone
	return t, nil
}

// Finish makes the unpacked layers a root for runners, whose programs run as the
// image's user.
func (t *Tree) Finish(ctx context.Context, user, workingDirectory string) error {
	if err := t.prepare(ctx, t.skeleton, user, workingDirectory); err != nil {
		return err
	}
	return t.endTimes()
}

// Disk returns about what the tree takes on the disk by now.
func (t *Tree) Disk() int64 { return t.written + int64(t.entries)<<10 }

// Close lets go of the directory. It may be called again.
func (t *Tree) Close() error { return t.root.Close() }

func newUnpacker(root *os.Root, limits Limits, room func() error) *unpacker {
	return &unpacker{root: root, limits: limits, room: room, seed: maphash.MakeSeed(), times: map[string]time.Time{}}
}

// Layer applies a layer, an uncompressed tar archive, and reads it to its very
// end.
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
			return fault.TooLarge("it has more than %d files", u.limits.Entries)
		}
		if err := u.look(); err != nil {
			return Explain(ctx, header.Name, err)
		}
		if err := u.apply(header, reader); err != nil {
			return Explain(ctx, header.Name, err)
		}
	}
	_, err := io.Copy(io.Discard, content)
	return Explain(ctx, "", err)
}

// Explain says of which entry an error is, and whose fault it is: what isn't the
// machine's is the image's.
func Explain(ctx context.Context, entry string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case fault.Known(err) || fault.IsFull(err):
		return err
	case errors.Is(err, unix.EIO), errors.Is(err, unix.EROFS), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("unpack %q: %w", entry, err)
	case entry != "":
		return fault.Broken(fmt.Sprintf("its entry %.200q can't be unpacked: %s", entry, reason(err)), err)
	}
	return fault.Broken("a layer can't be read", err)
}

// reason is what an error says without the machine's paths.
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

// apply does what one entry says.
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
			defer u.leave() // the way to the latest directory may be another now
		}
	}
	return u.put(base, header, content)
}

// top gives the image's own directory the owner and mode that a layer says.
// Everybody may go there: not only root runs programs.
func (u *unpacker) top(header *tar.Header) error {
	if header.Typeflag != tar.TypeDir {
		return errors.New("it stands for the root directory, and is none")
	}
	if err := u.root.Lchown(".", u.owner(header.Uid), u.owner(header.Gid)); err != nil {
		return err
	}
	return u.root.Chmod(".", mode(header)|0o555)
}

// local returns an entry's name as a path beneath the root.
func local(name string) (string, error) {
	if len(name) > maxPath {
		return "", fmt.Errorf("its name has %d bytes", len(name))
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", errors.New("it leads out of the image")
		}
	}
	return path.Clean("./" + path.Clean("/"+name)), nil
}

// endTimes sets the times of directories, which making something in them has
// changed.
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

// maxNaming bounds what is remembered to set times: some ten times what real
// images need. The times of further directories are lost.
const maxNaming = 32 << 20

func (u *unpacker) endTime(name string, at time.Time) {
	if u.naming += len(name); u.naming <= maxNaming {
		u.times[name] = at
	}
}

func (u *unpacker) hash(name string) uint64 { return maphash.String(u.seed, name) }

// A metered reader is a layer's, and ends with an error when its unpacking is ended,
// or when there is more than is allowed.
type metered struct {
	ended func() error // nil: go on
	layer io.Reader
	u     *unpacker
}

func (m *metered) Read(p []byte) (int, error) {
	if err := m.ended(); err != nil {
		return 0, err
	}
	n, err := m.layer.Read(p)
	if m.u.stream += int64(n); m.u.stream > m.u.limits.Bytes {
		return n, fault.TooLarge("it takes more than %s", fault.Size(m.u.limits.Bytes))
	}
	return n, err
}
