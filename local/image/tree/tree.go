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

// whiteOut deletes a file, or for an opaque entry all files in a directory, of lower layers only.
func (t *Tree) whiteOut(dir, base string) error {
	name := strings.TrimPrefix(base, whiteout)
	switch err := t.enter(dir, false); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	defer t.leave()
	switch {
	case base == opaque:
		return t.clear(t.at)
	case strings.HasPrefix(name, whiteout):
		return nil // internal data of old tools
	case name == "" || name == "." || name == "..":
		return errors.New("it names no file to delete")
	case t.layered[t.hash(path.Join(t.at, name))]:
		return nil
	}
	return t.parent.RemoveAll(name)
}

// clear deletes everything in a directory that isn't from this layer.
func (t *Tree) clear(dir string) error {
	open, err := t.root.Open(dir)
	if err != nil {
		return err
	}
	defer open.Close()
	entries, err := open.ReadDir(-1)
	for _, e := range entries {
		at := path.Join(dir, e.Name())
		switch {
		case !t.layered[t.hash(at)]:
			err = errors.Join(err, t.root.RemoveAll(at))
		case e.IsDir():
			err = errors.Join(err, t.clear(at))
		}
	}
	return err
}

// enter makes an entry's directory the parent; with missing it creates it. Consecutive entries
// mostly have the same directory, so it is kept open.
func (t *Tree) enter(dir string, missing bool) error {
	if t.parent != nil && t.dir == dir {
		return nil
	}
	t.leave()
	at, err := t.follow(dir, missing)
	if err != nil {
		return err
	}
	parent, err := t.root.OpenRoot(at)
	if err != nil {
		return err
	}
	t.parent, t.dir, t.at = parent, dir, at
	return nil
}

func (t *Tree) leave() {
	if t.parent != nil {
		_ = t.parent.Close()
	}
	t.parent, t.dir, t.at = nil, "", ""
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
func (t *Tree) follow(dir string, missing bool) (string, error) {
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
		info, err := t.root.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist) && missing:
			if err := t.makeDirectory(next); err != nil {
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
			to, err := t.root.Readlink(next)
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
func (t *Tree) makeDirectory(name string) error {
	if t.entries++; t.entries > t.spec.Limits.Entries {
		return TooLarge("it has more than %d files", t.spec.Limits.Entries)
	}
	t.layered[t.hash(name)] = true
	if err := t.root.Mkdir(name, 0o755); err != nil {
		return err
	}
	return t.root.Chmod(name, 0o755) // regardless of the umask
}
