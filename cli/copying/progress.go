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

// A progress shows on a terminal how far a copy has come.
type progress struct {
	out   io.Writer
	quiet bool

	mu    sync.Mutex // guards what follows
	turn  int        // counts what began
	name  string
	size  int64 // -1: unknown
	done  int64
	began time.Time
	shown time.Time // last
	open  bool      // a line stands there
}

// progressEvery is how often the line is written anew.
const progressEvery = 200 * time.Millisecond

func newProgress(errs io.Writer, quiet bool) *progress {
	file, ok := errs.(*os.File)
	return &progress{out: errs, quiet: quiet || !ok || !term.IsTerminal(int(file.Fd())), began: time.Now(), shown: time.Now()}
}

// begin names the file that follows, and returns what its bytes are to be
// written to; one that begins anew is counted anew, and its last attempt not any
// more.
func (p *progress) begin(name string, size int64) io.Writer {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn++
	p.name, p.size, p.done, p.began = name, size, 0, time.Now()
	return counter{p, p.turn}
}

// A counter counts the bytes of one turn.
type counter struct {
	progress *progress
	turn     int
}

// Write counts bytes.
func (c counter) Write(data []byte) (int, error) {
	c.progress.mu.Lock()
	defer c.progress.mu.Unlock()
	if c.turn == c.progress.turn {
		c.progress.count(int64(len(data)))
	}
	return len(data), nil
}

// add counts bytes of small files, of which the last is named.
func (p *progress) add(name string, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.name, p.size = name, -1
	p.count(n)
}

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

// end removes the line.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open {
		_, _ = io.WriteString(p.out, "\r\x1b[K")
		p.open = false
	}
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
