package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// whiteout is the name prefix of entries that delete files of lower layers. Of names with a double
// prefix only the opaque one has a meaning.
const (
	whiteout = ".wh."
	opaque   = whiteout + whiteout + ".opq"
)

// whiteOut deletes a file of lower layers, or for an opaque entry all of them in a directory. Files
// of this layer stay.
func (u *unpacker) whiteOut(dir, base string) error {
	name := strings.TrimPrefix(base, whiteout)
	switch err := u.enter(dir, false); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	defer u.leave()
	switch {
	case base == opaque:
		return u.clear(u.at)
	case strings.HasPrefix(name, whiteout):
		return nil // internal data of old tools
	case name == "" || name == "." || name == "..":
		return errors.New("it names no file to delete")
	case u.layered[u.hash(path.Join(u.at, name))]:
		return nil
	}
	return u.parent.RemoveAll(name)
}

// clear deletes everything in a directory that isn't from this layer.
func (u *unpacker) clear(dir string) error {
	open, err := u.root.Open(dir)
	if err != nil {
		return err
	}
	defer open.Close()
	entries, err := open.ReadDir(-1)
	for _, e := range entries {
		at := path.Join(dir, e.Name())
		switch {
		case !u.layered[u.hash(at)]:
			err = errors.Join(err, u.root.RemoveAll(at))
		case e.IsDir():
			err = errors.Join(err, u.clear(at))
		}
	}
	return err
}

// enter makes an entry's directory the parent; with missing it creates it. Consecutive entries
// mostly have the same directory, so it is kept open.
func (u *unpacker) enter(dir string, missing bool) error {
	if u.parent != nil && u.dir == dir {
		return nil
	}
	u.leave()
	at, err := u.follow(dir, missing)
	if err != nil {
		return err
	}
	parent, err := u.root.OpenRoot(at)
	if err != nil {
		return err
	}
	u.parent, u.dir, u.at = parent, dir, at
	return nil
}

// leave closes the parent.
func (u *unpacker) leave() {
	if u.parent != nil {
		_ = u.parent.Close()
	}
	u.parent, u.dir, u.at = nil, "", ""
}

// maxLinks is how many links a path may lead through, as in the kernel. maxDepth bounds its
// directories: deleting a tree takes a descriptor for each level.
const (
	maxLinks = 40
	maxDepth = 256
)

// follow resolves a directory of the image, with links resolved as in a runner: an absolute link
// starts at the image's root, and ".." doesn't leave it. With missing it creates missing
// directories; else it returns fs.ErrNotExist.
func (u *unpacker) follow(dir string, missing bool) (string, error) {
	at := "."
	todo := strings.Split(dir, "/")
	for links := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at) // that of "." is "."
			continue
		}
		next := path.Join(at, part)
		if strings.Count(next, "/") >= maxDepth {
			return "", fmt.Errorf("it is nested more than %d directories deep", maxDepth)
		}
		info, err := u.root.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist) && missing:
			if err := u.makeDirectory(next); err != nil {
				return "", err
			}
			at = next
		case err != nil:
			return "", err
		case info.IsDir():
			at = next
		case info.Mode()&fs.ModeSymlink != 0:
			if links++; links > maxLinks {
				return "", fmt.Errorf("its path has more than %d links", maxLinks)
			}
			to, err := u.root.Readlink(next)
			if err != nil {
				return "", err
			}
			if path.IsAbs(to) {
				at = "."
			}
			// The link's target comes before the rest of the path.
			todo = slices.Concat(strings.Split(to, "/"), todo)
		default:
			return "", fmt.Errorf("%s isn't a directory", next)
		}
	}
	return at, nil
}

// makeDirectory makes a directory that no layer describes.
func (u *unpacker) makeDirectory(name string) error {
	if u.entries++; u.entries > u.limits.Entries {
		return TooLarge("it has more than %d files", u.limits.Entries)
	}
	u.layered[u.hash(name)] = true
	if err := u.root.Mkdir(name, 0o755); err != nil {
		return err
	}
	return u.root.Chmod(name, 0o755) // regardless of the umask
}
