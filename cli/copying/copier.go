// Package copying copies files and directories into and out of a runner. It retries after broken
// connections and shows progress on a terminal.
package copying

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime/paths"
)

// A Copier copies files between this machine and one runner. Use it for one copy.
type Copier struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Client         *client.Client
	Runner         string
	Recursive      bool // copy directories with their contents
	Protected      bool // programs in the runner can't change the copied files
	Quiet          bool // show no progress

	progress *progress
	leftOut  int // files and directories that couldn't be copied
}

// skip reports a path that isn't copied because it is neither a file nor a directory. That isn't an error.
func (c *Copier) skip(path string, link bool) {
	what := "neither a file nor a directory"
	if link {
		what = "a symbolic link"
	}
	c.progress.end()
	_, _ = fmt.Fprintf(c.Stderr, "rockpool: skipped %s: it is %s\n", output.Plain(path), what)
}

// leaveOut reports a path that couldn't be copied. The copy continues and fails at its end.
func (c *Copier) leaveOut(path, why string) {
	c.leftOut++
	c.progress.end()
	_, _ = fmt.Fprintf(c.Stderr, "rockpool: couldn't copy %s: %s\n", output.Plain(path), output.Plain(why))
}

// stat returns the file at path; nil if there is none. It is a copy's first call: if no server
// listens, it doesn't retry.
func (c *Copier) stat(ctx context.Context, path string) (*client.DownloadableFile, error) {
	return c.statBy(ctx, command.Patient(c.Client, command.Patience), path)
}

// statBy is stat with the given sender, which decides about retries.
func (c *Copier) statBy(ctx context.Context, server client.Sender, path string) (*client.DownloadableFile, error) {
	out, err := client.GetFile(ctx, server, c.Runner, path)
	if err != nil {
		return nil, err
	}
	if out.Runner == nil {
		return nil, &client.Error{Message: fmt.Sprintf("runner %q doesn't exist: `rockpool runner list` lists the runners", c.Runner)}
	}
	return out.Runner.File, nil
}

// inRunner returns the text of a path, for the API; "" means the workspace.
func inRunner(path string) string { return cmp.Or(paths.Given(path), ".") }

// A progress shows the progress of a copy on a terminal.
type progress struct {
	out   io.Writer
	quiet bool

	mu    sync.Mutex // guards the fields below
	turn  int        // number of attempts so far
	name  string
	size  int64 // -1 means unknown
	done  int64
	began time.Time
	shown time.Time // when the line was last written
	open  bool      // a line is on the terminal
}

// progressEvery is the minimum time between two updates of the line.
const progressEvery = 200 * time.Millisecond

// newProgress returns a progress that writes to errs. It stays quiet unless errs is a terminal.
func newProgress(errs io.Writer, quiet bool) *progress {
	file, ok := errs.(*os.File)
	return &progress{out: errs, quiet: quiet || !ok || !term.IsTerminal(int(file.Fd())), began: time.Now(), shown: time.Now()}
}

// begin starts an attempt to copy a file. It returns the writer that counts the attempt's bytes.
// Bytes of earlier attempts no longer count.
func (p *progress) begin(name string, size int64) io.Writer {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn++
	p.name, p.size, p.done, p.began = name, size, 0, time.Now()
	return counter{p, p.turn}
}

// A counter counts the bytes of one attempt.
type counter struct {
	progress *progress
	turn     int
}

// Write counts data's bytes; it never fails.
func (c counter) Write(data []byte) (int, error) {
	c.progress.mu.Lock()
	defer c.progress.mu.Unlock()
	if c.turn == c.progress.turn {
		c.progress.count(int64(len(data)))
	}
	return len(data), nil
}

// add counts bytes of small files; name is the last of them.
func (p *progress) add(name string, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.name, p.size = name, -1
	p.count(n)
}

// count adds bytes and updates the line, at most once per progressEvery. The caller holds mu.
func (p *progress) count(n int64) {
	p.done += n
	if p.quiet || time.Since(p.shown) < progressEvery {
		return
	}
	p.shown, p.open = time.Now(), true
	of := ""
	if p.size > 0 {
		of = " of " + megabytes(p.size)
	}
	rate := megabytes(int64(float64(p.done) / max(time.Since(p.began).Seconds(), 0.001)))
	_, _ = fmt.Fprintf(p.out, "\r\x1b[K%s: %s%s, %s/s", output.Plain(p.name), megabytes(p.done), of, rate)
}

func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open {
		_, _ = io.WriteString(p.out, "\r\x1b[K")
		p.open = false
	}
}

// megabytes formats a number of bytes in MB, which are 1,000,000 bytes.
func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
