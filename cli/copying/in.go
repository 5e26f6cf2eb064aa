package copying

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime/paths"
)

// Small files are sent together in one call. Each larger file is streamed in its own call.
const (
	smallFile  = 128 << 10
	batchBytes = 1 << 20
	batchFiles = 100
)

// In copies a local file or directory into the runner; from "-" is Stdin. Unreadable files in a
// directory are left out and make the copy fail at its end.
func (c *Copier) In(ctx context.Context, from, to string) error {
	c.progress = newProgress(c.Stderr, c.Quiet)
	defer c.progress.end()
	if from == "-" {
		if to == "" || strings.HasSuffix(to, "/") {
			return errors.New("give a file name for standard input, as RUNNER:PATH")
		}
		to = inRunner(to)
		if _, err := c.stat(ctx, to); err != nil { // before reading stdin, which can't be read twice
			return err
		}
		return c.stream(ctx, c.Stdin, -1, to, "")
	}
	to = inRunner(to)
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() && !c.Recursive {
		return fmt.Errorf("%s is a directory: use -r to copy it with its contents", from)
	}
	there, err := c.stat(ctx, to)
	if err != nil {
		return err
	}
	if there != nil && there.Type == client.FileTypeDirectory || strings.HasSuffix(to, "/") {
		name, err := filepath.Abs(from) // so that "." has a name, too
		if err != nil {
			return err
		}
		to = path.Join(to, paths.Text(filepath.Base(name)))
	}
	// tree and file collect small files in the batch. The flush below sends the rest.
	b := batch{Copier: c}
	if info.IsDir() {
		err = b.tree(ctx, from, to)
	} else {
		err = b.file(ctx, from, to)
	}
	if err != nil {
		return err
	}
	if err := b.flush(ctx); err != nil {
		return err
	}
	return c.incomplete()
}

// incomplete returns an error if files were left out.
func (c *Copier) incomplete() error {
	if c.leftOut > 0 {
		return fmt.Errorf("not copied: %d (the lines above say why); the rest is copied", c.leftOut)
	}
	return nil
}

// A batch collects directories and small files for one call.
type batch struct {
	*Copier
	writes []client.FileInput
	bytes  int
	last   string // path of the last file
}

// nonblocking opens a FIFO without waiting for its writer.
const nonblocking = os.O_RDONLY | syscall.O_NONBLOCK

// file copies one file. from may be a symbolic link to it.
func (b *batch) file(ctx context.Context, from, to string) error {
	file, err := os.OpenFile(from, nonblocking, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is neither a file nor a directory", from)
	}
	return b.add(ctx, file, info, to)
}

// tree copies the contents of a directory. It leaves out files that can't be read or have
// disappeared meanwhile.
func (b *batch) tree(ctx context.Context, from, to string) error {
	root, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(anyNames{root}, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil && name == "." {
			return err
		}
		if err == nil && ctx.Err() == nil {
			at := path.Join(to, paths.Text(name))
			if entry.IsDir() {
				err = b.directory(ctx, entry, at)
			} else {
				err = b.entry(ctx, root, name, at, entry)
			}
		}
		if unreadable, ok := errors.AsType[*fs.PathError](err); ok {
			b.leaveOut(filepath.Join(from, name), unreadable.Err.Error())
			return nil
		}
		return cmp.Or(err, ctx.Err())
	})
}

// anyNames opens the files of a root. Unlike [os.Root.FS] it accepts names that aren't UTF-8.
type anyNames struct{ root *os.Root }

func (a anyNames) Open(name string) (fs.File, error) { return a.root.Open(name) }

// directory adds a directory to the batch, without its contents.
func (b *batch) directory(ctx context.Context, entry fs.DirEntry, at string) error {
	if at == "." || at == "/" {
		return nil // it exists
	}
	info, err := entry.Info()
	if err != nil {
		return err
	}
	b.writes = append(b.writes, client.FileInput{Path: at, Directory: new(true), Mode: new(mode(info))})
	return b.flushIfFull(ctx)
}

// entry copies one file. It inspects the opened file, since the name may refer to another file by now.
func (b *batch) entry(ctx context.Context, root *os.Root, name, at string, entry fs.DirEntry) error {
	if !entry.Type().IsRegular() {
		b.skip(filepath.Join(root.Name(), name), entry.Type()&fs.ModeSymlink != 0)
		return nil
	}
	file, err := root.OpenFile(name, nonblocking, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		b.leaveOut(filepath.Join(root.Name(), name), "it is no longer a file")
		return nil
	}
	return b.add(ctx, file, info, at)
}

// mode returns permission bits for a file in the runner.
func mode(info fs.FileInfo) string {
	if info.IsDir() || info.Mode()&0o100 != 0 {
		return "0755"
	}
	return "0644"
}

// add streams a large file now, and adds a small one to the batch. It doesn't close file.
func (b *batch) add(ctx context.Context, file *os.File, info fs.FileInfo, to string) error {
	if info.Size() > smallFile {
		return b.stream(ctx, file, info.Size(), to, mode(info))
	}
	data, err := io.ReadAll(io.LimitReader(file, smallFile+1))
	if err != nil {
		return err
	}
	if len(data) > smallFile {
		return fmt.Errorf("%s grew during the copy", file.Name())
	}
	b.writes = append(b.writes, client.FileInput{Path: to, Base64: data, Mode: new(mode(info))})
	b.bytes += len(data)
	b.last = to
	return b.flushIfFull(ctx)
}

// flushIfFull sends the batch if it has enough files or bytes.
func (b *batch) flushIfFull(ctx context.Context) error {
	if len(b.writes) < batchFiles && b.bytes < batchBytes {
		return nil
	}
	return b.flush(ctx)
}

// flush sends the batch in one call and empties it. It retries after broken connections. It returns
// the first file that the server couldn't write as an error.
func (b *batch) flush(ctx context.Context) error {
	if len(b.writes) == 0 {
		return nil
	}
	input := client.UpdateFilesInput{RunnerId: b.Runner, Write: b.writes, Protected: &b.Protected}
	var out *client.UpdateFilesResponse
	err := b.persist(ctx, client.Passing, func() (err error) {
		out, err = client.UpdateFiles(ctx, b.Client, input)
		return err
	})
	if err != nil {
		return err
	}
	if failed := out.UpdateFiles.Failed; len(failed) > 0 {
		return fmt.Errorf("%s: %s", failed[0].Path, failed[0].Message)
	}
	b.progress.add(b.last, int64(b.bytes))
	b.writes, b.bytes = nil, 0
	return nil
}

// stream sends one file. If the connection breaks, it retries from the file's beginning, unless
// content can't be read again.
func (c *Copier) stream(ctx context.Context, content io.Reader, size int64, to, mode string) error {
	file, again := content.(io.ReaderAt)
	again = again && size >= 0
	var source *source
	err := c.persist(ctx, func(err error) bool {
		return again && source.failed() == nil && client.Passing(err)
	}, func() error {
		// Each attempt needs its own reader: the previous one may still be in use for a moment.
		if again {
			content = io.NewSectionReader(file, 0, size)
		}
		source = newSource(io.TeeReader(content, c.progress.begin(to, size)), size)
		if again {
			source.whole = file
		}
		return c.Client.UploadFile(ctx, c.Runner, to, mode, c.Protected, size, source)
	})
	if err != nil && source.failed() != nil {
		return fmt.Errorf("read the contents of %s: %w", to, source.failed())
	}
	return err
}

// persist repeats an attempt while again allows it: after a broken connection, or while the server
// is at a limit. It also waits for a restarting server, because the server has responded before.
func (c *Copier) persist(ctx context.Context, again func(error) bool, attempt func() error) error {
	reported := false
	err := client.Persist(ctx, command.Patience, func(err error) bool {
		retry := again(err)
		if retry && !reported && ctx.Err() == nil && !errors.As(err, new(*client.Error)) {
			reported = true
			c.progress.end()
			_, _ = fmt.Fprintf(c.Stderr, "rockpool: the connection broke; trying to reconnect for %v (Ctrl-C stops)\n", command.Patience)
		}
		return retry
	}, attempt)
	if lost, ok := errors.AsType[*command.LostError](command.Lost(c.Client, err)); ok && ctx.Err() == nil {
		return fmt.Errorf("%w; the copy is incomplete: repeat the command when the server is back", lost)
	}
	return err
}

// A source reads a local file and keeps its read error, which reconnecting doesn't help.
type source struct {
	from  io.Reader
	size  int64
	left  int64       // -1 means unknown
	whole io.ReaderAt // the file of which from is the first size bytes; nil if it is unknown

	mu  sync.Mutex // guards err
	err error
}

// newSource returns a source of size bytes; -1 means the size is unknown.
func newSource(from io.Reader, size int64) *source {
	return &source{from: from, size: size, left: size}
}

// Read reads from the file. It returns an error if the file shrinks or grows.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	if s.left >= 0 {
		s.left -= int64(n)
	}
	if errors.Is(err, io.EOF) && s.left > 0 {
		err = errors.New("it became shorter during the copy")
	}
	if errors.Is(err, io.EOF) && s.whole != nil {
		if more, _ := s.whole.ReadAt(make([]byte, 1), s.size); more > 0 {
			err = errors.New("it grew during the copy")
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
	}
	return n, err
}

// failed returns the read error so far, or nil. It is safe while another goroutine reads.
func (s *source) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
