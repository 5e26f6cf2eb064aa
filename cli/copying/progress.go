package copying

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/rockpool/rockpool/cli/output"
)

// A progress shows the progress of a copy on a terminal.
type progress struct {
	out   io.Writer
	quiet bool

	mu    sync.Mutex // guards the fields below
	turn  int        // number of attempts so far
	name  string
	size  int64 // -1: unknown
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

// end removes the line from the terminal.
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
