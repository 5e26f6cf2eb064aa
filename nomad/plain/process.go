package plain

import (
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/serve"
)

// A process is one command in the runner, and the script around it. How it
// ended is known when the script has said so on both outputs, behind all that
// was printed; an exec that ends before is LOST.
type process struct {
	r        *Runner
	terminal bool
	stdin    bool
	mark     string // in the environment of the command and all that it starts
	fifo     string // for stderr with a terminal; "": none

	script *script
	begun  chan []string // what the script tells until its command has begun
	// As run.sh told them, in the runner's numbers. Set before begun has a value.
	wrapper, group, session string
	apart                   bool // stderr is in the FIFO

	stdout, stderr   *io.PipeReader
	out              *io.PipeWriter
	errors           *early
	busy, written    atomic.Int64 // writes to both that are on their way, and that there were
	resize           chan agent.Size
	signalling       sync.Mutex // held while a signal is on its way, so that they stay in order
	killed, watching sync.Once

	mu     sync.Mutex // guards what follows
	tap    *script    // reads the FIFO
	ended  [3]bool    // by stream: the script has said so
	status serve.Status
	over   chan struct{} // closed when status is known
}

func newProcess(r *Runner, start agent.Start) *process {
	p := &process{
		r: r, terminal: start.Terminal != nil, stdin: start.Stdin,
		mark:  markVariable + "=" + r.owner + r.instance + ":" + secret()[:16] + ".",
		begun: make(chan []string, 2), over: make(chan struct{}),
		resize: make(chan agent.Size, 1),
	}
	p.stdout, p.out = io.Pipe()
	p.stderr, p.errors = newEarly()
	return p
}

// run starts the script.
func (p *process) run(told []byte) {
	mode := "pipes"
	if p.terminal {
		mode = "terminal"
	}
	p.mu.Lock() // the script may say something before it is known here
	defer p.mu.Unlock()
	p.script = p.r.run(p.r.ctx, launch{
		kind: p.r.runKind, args: []string{mode, p.mark}, told: told, terminal: p.terminal, resize: p.resize,
		stdout: counted{p, p.out}, stderr: counted{p, p.errors}, heard: p.heard,
	}, secret())
}

// heard takes in what the script tells.
func (p *process) heard(s *script, stream int, words []string) {
	switch {
	case len(words) == 0:
	case words[0] == "ended" && len(words) == 2:
		p.outputEnded(stream, words[1])
	default:
		if words[0] == "refused" {
			s.release(p.terminal)
		}
		if words[0] == started && len(words) >= 3 && stream == 1 {
			p.known(words)
		}
		select {
		case p.begun <- words:
		default:
		}
	}
}

// known takes in what the script tells of the command, before anything else can
// come from it.
func (p *process) known(words []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wrapper != "" {
		return
	}
	p.group, p.wrapper, p.apart = words[1], words[2], len(words) > 3
	switch {
	case p.terminal:
		p.session = p.wrapper
	case p.r.has("setsid"):
		p.session = p.group
	}
}

// outputEnded takes in that the command has ended, and with it an output.
func (p *process) outputEnded(stream int, code string) {
	p.mu.Lock()
	p.ended[stream] = true
	if p.terminal && !p.apart {
		p.ended[2] = true
	}
	one, two, script := p.ended[1], p.ended[2], p.script
	p.mu.Unlock()
	if one {
		_ = p.out.Close()
	}
	if two {
		p.errors.close()
	}
	if one && two {
		p.finish(statusOf(code))
		script.release(p.terminal)
	}
}

// statusOf makes a shell's $? a status.
func statusOf(text string) serve.Status {
	code, err := strconv.Atoi(text)
	if err != nil || code < 0 || code > 255 {
		return serve.Status{Lost: true}
	}
	if name := unix.SignalName(syscall.Signal(code - 128)); code > 128 && name != "" {
		return serve.Status{Signal: name}
	}
	return serve.Status{Code: code}
}

// finish says how the command ended; only the first counts.
func (p *process) finish(status serve.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.over:
		return
	default:
	}
	p.status = status
	close(p.over)
	_ = p.out.Close()
	p.errors.close()
}

// lose says that nobody can tell how the command ended, and reports why.
func (p *process) lose(why error) {
	if !p.isOver() {
		p.r.config.Report(fmt.Errorf("an execution is lost: %w", why))
	}
	p.finish(serve.Status{Lost: true})
}

func (p *process) isOver() bool {
	select {
	case <-p.over:
		return true
	default:
		return false
	}
}

// follow sees the script through from the start of its command on.
func (p *process) follow() {
	p.r.running.Go(func() {
		<-p.script.done
		// What it said at last is here already.
		p.lose(p.script.result())
	})
	p.r.running.Go(func() {
		p.busy.Add(1)
		defer p.busy.Add(-1)
		p.errors.open()
	})
	if p.apart {
		p.r.running.Go(p.listen)
	}
}

// listenTries is how often a reader of the FIFO is started that doesn't come to
// read. Until one does, nothing is lost: the script holds the FIFO open.
const listenTries = 8

// listen reads the FIFO.
func (p *process) listen() {
	pause := firstPause
	for range listenTries {
		var reading atomic.Bool
		tap := p.r.run(p.r.ctx, launch{
			kind: p.r.tapKind, told: values(p.fifo), stdout: counted{p, p.errors},
			heard: func(s *script, _ int, words []string) {
				if len(words) > 0 && words[0] == started {
					reading.Store(true)
					return
				}
				p.heard(s, 2, words)
			},
		}, p.script.secret)
		tap.input.end()
		p.mu.Lock()
		p.tap = tap
		p.mu.Unlock()
		select {
		case <-tap.done:
		case <-p.over:
			tap.release(false)
			return
		}
		switch {
		case p.isOver():
			return
		case reading.Load():
			p.lose(fmt.Errorf("read stderr: %w", tap.result()))
			return
		}
		if !sleep(p.r.ctx, pause) {
			break
		}
		pause = min(2*pause, lastPause)
	}
	p.lose(fmt.Errorf("stderr could not be read"))
}

// counted counts the writes of an output.
type counted struct {
	p *process
	w io.Writer
}

func (c counted) Write(b []byte) (int, error) {
	c.p.busy.Add(1)
	defer c.p.busy.Add(-1)
	defer c.p.written.Add(1)
	return c.w.Write(b)
}

// Pipes is of [serve.Process].
func (p *process) Pipes() (stdin io.WriteCloser, stdout, stderr io.Reader) {
	switch {
	case p.terminal:
		return &keyboard{input: p.script.input, last: '\n'}, p.stdout, p.stderr
	case p.stdin:
		return pipe{p.script.input}, p.stdout, p.stderr
	default:
		return nil, p.stdout, p.stderr
	}
}

// Wait is of [serve.Process].
func (p *process) Wait() serve.Status {
	<-p.over
	return p.status
}

// Resize is of [serve.Process].
func (p *process) Resize(size agent.Size) {
	if !p.terminal {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.resize: // the newest counts
	default:
	}
	p.resize <- size
}

// Measure is of [serve.Process]: nothing is known.
func (p *process) Measure() serve.Measure { return serve.Measure{} }

// Refused is of [serve.Process]: likewise.
func (p *process) Refused() int64 { return 0 }

// Excessive is of [serve.Process]: likewise.
func (p *process) Excessive() bool { return false }

// Close is of [serve.Process].
func (p *process) Close() serve.Usage {
	p.discard()
	return serve.Usage{}
}

// discard ends the execs, which a script that is well does by itself.
func (p *process) discard() {
	p.mu.Lock()
	lost, tap := !p.isOver() || p.status.Lost, p.tap
	p.mu.Unlock()
	_ = p.stdout.Close()
	_ = p.stderr.Close()
	p.errors.open() // nobody reads it: this ends a write that waits
	p.script.release(p.terminal)
	if lost {
		p.script.cancel(errClosed)
	}
	if tap != nil && lost {
		tap.cancel(errClosed)
	}
}

// A pipe is the stdin of a command without a terminal.
type pipe struct{ input *input }

func (w pipe) Write(b []byte) (int, error) { return w.input.give(b) }

// Close lets the command read the end.
func (w pipe) Close() error {
	w.input.end()
	return nil
}

// A keyboard is what is typed into a terminal. It is a [serve.Ender].
type keyboard struct {
	input *input
	last  byte // that was typed
}

func (k *keyboard) Write(b []byte) (int, error) {
	n, err := k.input.give(b)
	if n > 0 {
		k.last = b[n-1]
	}
	return n, err
}

// End types Ctrl-D; in the middle of a line the first only sends the line off.
func (k *keyboard) End() error {
	typed := "\x04"
	if k.last != '\n' && k.last != '\r' {
		typed += "\x04"
	}
	_, err := k.input.give([]byte(typed))
	return err
}

// Close ends a Write that blocks. The terminal stays: without its end the
// commands that are read from it would fail.
func (k *keyboard) Close() error {
	k.input.stop()
	return nil
}
