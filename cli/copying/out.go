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

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime/paths"
)

// Out copies a file or directory from the runner to this machine; to "-" is Stdout. The program in
// the runner chooses the names and links there, so Out never writes outside of the destination,
// whatever they are.
func (c *Copier) Out(ctx context.Context, from, to string) error {
	c.progress = newProgress(c.Stderr, c.Quiet)
	defer c.progress.end()
	from = inRunner(from)
	file, err := c.stat(ctx, from)
	if err != nil {
		return err
	}
	switch {
	case file == nil:
		return fmt.Errorf("%s doesn't exist in runner %s", from, c.Runner)
	case file.Type == client.FileTypeDirectory && !c.Recursive:
		return fmt.Errorf("%s is a directory: use -r to copy it with its contents", from)
	case file.Type != client.FileTypeDirectory && file.Type != client.FileTypeFile:
		return fmt.Errorf("%s is neither a file nor a directory", from)
	case to == "-" && file.Type == client.FileTypeDirectory:
		return errors.New("a directory can't be copied to standard output: give a local directory")
	case to == "-":
		return c.print(ctx, file)
	}
	dir, name := filepath.Split(to)
	if info, err := os.Stat(to); err == nil && info.IsDir() {
		if name, err = paths.Bytes(baseInRunner(from)); err != nil {
			return err
		}
		dir = to
	} else if name == "" {
		return fmt.Errorf("%s doesn't exist: create the directory first", to)
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
	return c.incomplete()
}

// baseInRunner returns the last name of a path. For the runner's root it returns ".": the contents
// of the root go into the destination itself.
func baseInRunner(at string) string {
	if !path.IsAbs(at) {
		at = path.Join("/workspace", at)
	}
	if at = path.Clean(at); at == "/" {
		return "."
	}
	return path.Base(at)
}

// fetchTree copies a directory's contents to the directory name below root. Every path stays below
// it: an [os.Root] doesn't follow links that lead out.
func (c *Copier) fetchTree(ctx context.Context, root *os.Root, name, from string) error {
	if err := root.MkdirAll(name, 0o777); err != nil {
		return err
	}
	below, err := root.OpenRoot(name)
	if err != nil {
		return err
	}
	defer below.Close()
	files, err := command.Pages(func(after *string) ([]client.File, client.PageInfo, error) {
		var out *client.GetFilesResponse
		err := c.persist(ctx, client.Passing, func() (err error) {
			out, err = client.GetFiles(ctx, c.Client, c.Runner, &from, command.PageSize, after)
			return err
		})
		switch {
		case err != nil:
			return nil, client.PageInfo{}, err
		case out.Runner == nil:
			return nil, client.PageInfo{}, errors.New("the runner is gone")
		}
		return out.Runner.Files.Nodes, out.Runner.Files.PageInfo, nil
	})
	if err != nil {
		return err
	}
	for _, file := range files {
		raw, wrong := paths.Parse(file.Path)
		local := filepath.FromSlash(raw)
		switch {
		case wrong != nil:
			c.leaveOut(file.Path, wrong.Error())
		case !filepath.IsLocal(local):
			c.leaveOut(file.Path, "its name leads out of the destination")
		case file.Type == client.FileTypeDirectory:
			err = below.MkdirAll(local, 0o777)
		case file.Type == client.FileTypeFile:
			err = c.fetch(ctx, below, local, path.Join(from, file.Path), file.Mode)
		default:
			c.skip(file.Path, file.Type == client.FileTypeLink)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fetch writes to a temporary file in the same directory and then renames it, so that an incomplete
// file never has the file's name.
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
	// The temporary name is short and independent of the file's name, which may already have the
	// maximum of 255 bytes. The umask applies to the mode.
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

// A rewinder is a destination in which a download can start again.
type rewinder interface {
	io.WriteSeeker
	Truncate(size int64) error
}

// download copies a file's content. If the connection breaks, it starts again from the beginning.
// It requests a new URL for each attempt, because URLs are short-lived.
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
			return &client.Error{Message: from + " no longer exists"}
		}
		return c.content(ctx, now, out, c.progress.begin(from, now.Size))
	})
}

// content copies a file's bytes. An error on this side, such as a full disk, is returned as a
// *client.Error, so that it isn't retried.
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

// A sink keeps the error of a failed write.
type sink struct {
	io.Writer
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.Writer.Write(p)
	s.err = err
	return n, err
}

// print writes a file to standard output. It never retries: written bytes can't be taken back.
func (c *Copier) print(ctx context.Context, file *client.DownloadableFile) error {
	out := output.Guarded(c.Stdout, false)
	return errors.Join(c.content(ctx, file, out, io.Discard), out.Close())
}
