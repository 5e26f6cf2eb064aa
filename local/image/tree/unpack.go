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
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime"
)

// Limits are the limits of one image.
type Limits struct {
	Bytes   int64 // of all layers, unpacked, including files that a later layer deletes
	Entries int   // files, directories and links in all layers
}

const maxPath = 4096

// A Spec says what a root directory must be like.
type Spec struct {
	Limits           Limits   `json:"limits"`
	Skeleton         Skeleton `json:"skeleton"`
	User             string   `json:"user"` // in the image's configuration: programs run as this user
	WorkingDirectory string   `json:"workingDirectory"`
	Alone            bool     `json:"alone,omitempty"` // all files belong to this process's user, which can't give them away
}

// A Tree is an image's root directory in the making. It applies the layers, in order, to a directory
// that nobody else changes meanwhile. It makes every change beneath root. One goroutine uses it.
type Tree struct {
	root *os.Root
	spec Spec
	room func() error // returns an error if disk space or time is used up

	stream  int64 // bytes read of the layers, uncompressed
	written int64 // bytes of files; sparse files take less of the stream
	entries int
	checked struct { // values at the last call of room
		written int64
		entries int
	}

	parent  *os.Root // directory of the latest entry, if it is open
	dir     string   // its name in the layer
	at      string   // its path without links
	seed    maphash.Seed
	layered map[uint64]bool      // hashes of the paths that this layer has created
	times   map[string]time.Time // of directories; set at the end, because entries change them
	naming  int                  // bytes of the names in times
}

// Make makes an empty tree at a path. It calls room from time to time with the bytes that the tree
// takes on the disk; an error of room ends the work.
func Make(at string, spec Spec, room func(taken int64) error) (*Tree, error) {
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
	t := newTree(root, spec)
	t.room = func() error { return room(t.Disk()) }
	return t, nil
}

func newTree(root *os.Root, spec Spec) *Tree {
	return &Tree{root: root, spec: spec, seed: maphash.MakeSeed(), times: map[string]time.Time{}}
}

// Disk returns about the bytes that the tree takes on the disk by now.
func (t *Tree) Disk() int64 { return t.written + int64(t.entries)<<10 }

// Close releases the directory. It may be called again.
func (t *Tree) Close() error { return t.root.Close() }

// Layer applies a layer, an uncompressed tar archive, and reads it to its end.
func (t *Tree) Layer(ctx context.Context, content io.Reader) error {
	t.layered = map[uint64]bool{}
	defer t.leave()
	content = &meteredReader{func() error { return context.Cause(ctx) }, content, t}
	reader := tar.NewReader(content)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Explain(ctx, "", err)
		}
		if t.entries++; t.entries > t.spec.Limits.Entries {
			return TooLarge("it has more than %d files", t.spec.Limits.Entries)
		}
		if err := t.checkRoom(); err != nil {
			return Explain(ctx, header.Name, err)
		}
		if err := t.apply(header, reader); err != nil {
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
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err.Error()
	}
	if link, ok := errors.AsType[*os.LinkError](err); ok {
		return link.Err.Error()
	}
	return err.Error()
}

func (t *Tree) apply(header *tar.Header, content io.Reader) error {
	switch header.Typeflag {
	case tar.TypeXGlobalHeader, tar.TypeChar, tar.TypeBlock:
		return nil // a runner has its own devices; these would be the machine's
	}
	name, err := local(header.Name)
	if err != nil {
		return err
	}
	if name == "." {
		return t.rootEntry(header)
	}
	dir, base := path.Split(name)
	if dir = path.Clean(dir); strings.HasPrefix(base, whiteout) {
		return t.whiteOut(dir, base)
	}
	if err := t.enter(dir, true); err != nil {
		return err
	}
	t.layered[t.hash(path.Join(t.at, base))] = true
	info, err := t.parent.Lstat(base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case info.IsDir() && header.Typeflag == tar.TypeDir:
	default:
		if err := t.parent.RemoveAll(base); err != nil {
			return err
		}
		if info.IsDir() || info.Mode()&fs.ModeSymlink != 0 {
			defer t.leave() // the path of the latest directory may have changed
		}
	}
	return t.put(base, header, content)
}

// rootEntry sets the root directory's owner and mode. Every user may enter it: not only root runs programs.
func (t *Tree) rootEntry(header *tar.Header) error {
	if header.Typeflag != tar.TypeDir {
		return errors.New("it is the root directory's entry, but isn't a directory")
	}
	if err := t.root.Lchown(".", t.owner(header.Uid), t.owner(header.Gid)); err != nil {
		return err
	}
	return t.root.Chmod(".", mode(header)|0o555)
}

// local returns an entry's name as a path relative to the root. A name with ".." is an error.
func local(name string) (string, error) {
	if len(name) > maxPath {
		return "", fmt.Errorf("its name is too long: %d bytes", len(name))
	}
	if slices.Contains(strings.Split(name, "/"), "..") {
		return "", errors.New("it leads out of the image")
	}
	return path.Clean("./" + path.Clean("/"+name)), nil
}

// setTimes sets the times of directories, which creating entries in them has changed.
func (t *Tree) setTimes() error {
	for name, at := range t.times {
		info, err := t.root.Lstat(name)
		if err != nil || !info.IsDir() {
			continue // another layer has replaced or deleted it
		}
		if err := t.root.Chtimes(name, at, at); err != nil {
			return err
		}
	}
	return nil
}

// maxNaming bounds the memory of names in times, in bytes: about ten times what real images need.
// Times of further directories aren't set.
const maxNaming = 32 << 20

// keepTime keeps the time of a directory for setTimes, within maxNaming.
func (t *Tree) keepTime(name string, at time.Time) {
	if t.naming += len(name); t.naming <= maxNaming {
		t.times[name] = at
	}
}

func (t *Tree) hash(name string) uint64 { return maphash.String(t.seed, name) }

// A meteredReader ends with an error when the unpacking must end, or the layer exceeds the limit.
type meteredReader struct {
	ended func() error // returns nil to continue
	layer io.Reader
	tree  *Tree
}

func (m *meteredReader) Read(p []byte) (int, error) {
	if err := m.ended(); err != nil {
		return 0, err
	}
	n, err := m.layer.Read(p)
	if m.tree.stream += int64(n); m.tree.stream > m.tree.spec.Limits.Bytes {
		return n, TooLarge("it takes more than %s", FormatSize(m.tree.spec.Limits.Bytes))
	}
	return n, err
}

// Invalid returns INVALID_INPUT for an unusable image. why must name no path of the machine.
func Invalid(why string, err error) error {
	return &runtime.Error{Code: runtime.CodeInvalidInput, Field: "image", Message: "can't be used: " + why, Err: err}
}

// TooLarge returns INVALID_INPUT for an image that exceeds a limit.
func TooLarge(format string, args ...any) error { return Invalid(fmt.Sprintf(format, args...), nil) }

// HasMessage reports whether an error already has a message for clients.
func HasMessage(err error) bool {
	_, has := errors.AsType[*runtime.Error](err)
	return has
}

// IsFull reports whether an error is due to a full disk or an exceeded disk quota.
func IsFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// FormatSize formats a number of bytes.
func FormatSize(bytes int64) string {
	if bytes < 10<<20 {
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}
