package copying

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rockpool/rockpool/cli/connection"
	"github.com/rockpool/rockpool/client"
)

// Out copies a file or directory from the runner to here; to "-" is Stdout. What is in a runner
// is chosen by the program there: nothing is written outside of the place that
// was named, by whatever names or links.
func (c *Copier) Out(ctx context.Context, from, to string) error {
	c.progress = newProgress(c.Stderr, c.Quiet)
	defer c.progress.end()
	file, err := c.stat(ctx, from)
	if err != nil {
		return err
	}
	switch {
	case file == nil:
		return fmt.Errorf("%s isn't in runner %s", from, c.Runner)
	case file.Type == client.FileTypeDirectory && !c.Recursive:
		return fmt.Errorf("%s is a directory: give -r to copy it with all that is in it", inRunner(from))
	case file.Type != client.FileTypeDirectory && file.Type != client.FileTypeFile:
		return fmt.Errorf("%s is neither a file nor a directory", from)
	case to == "-" && file.Type == client.FileTypeDirectory:
		return errors.New("a directory can't be written to standard output")
	case to == "-":
		return c.print(ctx, file)
	}
	dir, name := filepath.Split(to)
	if info, err := os.Stat(to); err == nil && info.IsDir() {
		dir, name = to, baseInRunner(from)
	} else if name == "" {
		return fmt.Errorf("%s isn't there", to)
	}
	root, err := os.OpenRoot(filepath.Clean(dir))
	if err != nil {
		return err
	}
	defer root.Close()
	if file.Type == client.FileTypeFile {
		return c.fetch(ctx, root, name, from, file.Mode)
	}
	if err := c.fetchTree(ctx, root, name, from); err != nil {
		return err
	}
	return c.complain()
}

// baseInRunner returns the last name of a path, or "." where there is none: what
// is in the runner's root goes into the directory itself.
func baseInRunner(at string) string {
	if !path.IsAbs(at) {
		at = path.Join("/workspace", at)
	}
	if at = path.Clean(at); at == "/" {
		return "."
	}
	return path.Base(at)
}

func (c *Copier) fetchTree(ctx context.Context, root *os.Root, name, from string) error {
	if err := root.MkdirAll(name, 0o777); err != nil {
		return err
	}
	below, err := root.OpenRoot(name)
	if err != nil {
		return err
	}
	defer below.Close()
	files, err := connection.Pages(func(after *string) ([]client.File, client.PageInfo, error) {
		var out *client.GetFilesResponse
		err := c.persist(ctx, client.Passing, func() (err error) {
			out, err = client.GetFiles(ctx, c.Client, c.Runner, new(inRunner(from)), connection.PageSize, after)
			return err
		})
		switch {
		case err != nil:
			return nil, client.PageInfo{}, err
		case out.Runner == nil:
			return nil, client.PageInfo{}, errors.New("the runner isn't there any more")
		}
		return out.Runner.Files.Nodes, out.Runner.Files.PageInfo, nil
	})
	if err != nil {
		return err
	}
	for _, file := range files {
		local := filepath.FromSlash(file.Path)
		switch {
		case !filepath.IsLocal(local):
			c.leaveOut(file.Path, "its name leads elsewhere")
		case strings.ContainsRune(file.Path, '\uFFFD'):
			c.leaveOut(file.Path, "its name isn't UTF-8")
		case file.Type == client.FileTypeDirectory:
			err = below.MkdirAll(local, 0o777)
		case file.Type == client.FileTypeFile:
			err = c.fetch(ctx, below, local, path.Join(inRunner(from), file.Path), file.Mode)
		default:
			c.skip(file.Path, file.Type == client.FileTypeLink)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fetch writes a file beside its place and renames it: half a file never has
// its name.
func (c *Copier) fetch(ctx context.Context, root *os.Root, name, from, mode string) error {
	bits, err := strconv.ParseUint(mode, 8, 32)
	if err != nil {
		return fmt.Errorf("read the mode of %s: %w", from, err)
	}
	if dir := filepath.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o777); err != nil {
			return err
		}
	}
	// A name of its own, and short: that of the file may have all of the 255 bytes
	// that there are. The umask has its say on the mode.
	part := filepath.Join(filepath.Dir(name), ".rockpool-"+rand.Text()[:12])
	out, err := root.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fs.FileMode(bits)&0o777|0o200)
	if err != nil {
		return err
	}
	err = c.download(ctx, from, out)
	if err = errors.Join(err, out.Close()); err == nil {
		err = root.Rename(part, name)
	}
	if err != nil {
		_ = root.Remove(part)
	}
	return err
}

// A rewinder is what a download begins anew in.
type rewinder interface {
	io.WriteSeeker
	Truncate(size int64) error
}

// download copies a file's content. A connection that breaks is taken up again
// from the beginning; a URL is asked for each time, since it is short-lived.
func (c *Copier) download(ctx context.Context, from string, out rewinder) error {
	return c.persist(ctx, client.Passing, func() error {
		if _, err := out.Seek(0, io.SeekStart); err != nil {
			return &client.Error{Message: err.Error()}
		}
		if err := out.Truncate(0); err != nil {
			return &client.Error{Message: err.Error()}
		}
		now, err := c.statBy(ctx, c.Client, from)
		if err != nil {
			return err
		}
		if now == nil {
			return &client.Error{Message: from + " isn't there any more"}
		}
		return c.content(ctx, now, out, c.progress.begin(from, now.Size))
	})
}

// content copies a file's bytes. What goes wrong here, such as a full disk, is
// no error that another connection mends.
func (c *Copier) content(ctx context.Context, file *client.DownloadableFile, out, counter io.Writer) error {
	if file.DownloadUrl == nil {
		return &client.Error{Message: file.Path + " can't be downloaded"}
	}
	content, _, err := c.Client.Download(ctx, *file.DownloadUrl, 0)
	if err != nil {
		return err
	}
	defer content.Close()
	here := &sink{Writer: out}
	_, err = io.Copy(here, io.TeeReader(content, counter))
	if here.err != nil {
		return &client.Error{Message: here.err.Error()}
	}
	return err
}

// A sink remembers that it could not be written to.
type sink struct {
	io.Writer
	err error
}

// Write writes on.
func (s *sink) Write(p []byte) (int, error) {
	n, err := s.Writer.Write(p)
	s.err = err
	return n, err
}

// print writes a file to standard output, once: what is out can't be taken
// back.
func (c *Copier) print(ctx context.Context, file *client.DownloadableFile) error {
	return c.content(ctx, file, c.Stdout, io.Discard)
}
