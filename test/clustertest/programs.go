package clustertest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/serve"
)

// programs is a serve.Executor whose commands are Go functions: true, false, echo, pwd, cat, sleep
// SECONDS, exit CODE, zeros BYTES, stderr TEXT, count LINES. Its files are a map.
type programs struct {
	running sync.WaitGroup // goroutines of commands; Fake.Remove waits for them

	mu        sync.Mutex // guards the fields below
	files     map[string][]byte
	protected map[string]bool // paths of files
	changes   []agent.Change  // of files
	news      chan struct{}   // closed and replaced at each change
	begun     map[string]int  // how often each execution was started
}

func newPrograms() *programs {
	return &programs{files: map[string][]byte{}, protected: map[string]bool{}, news: make(chan struct{}), begun: map[string]int{}}
}

// Start implements serve.Executor.
func (h *programs) Adopt(agent.Start, []*os.File) (serve.Process, error) {
	return nil, &agent.Error{Code: agent.ErrInternal, Message: "the fake has no cells"}
}

func (h *programs) Start(start agent.Start) (serve.Process, error) {
	argv := start.Argv
	if n := len(argv); (n == 3 || n == 5) && argv[1] == "-c" { // a command line, or a script with one as its argument
		argv = strings.Fields(argv[n-1])
	}
	if argv[0] == "pwd" {
		argv = []string{"echo", start.Dir}
	}
	run := commands[argv[0]]
	if run == nil {
		return nil, &agent.Error{Code: agent.ErrNotFound, Field: "argv", Message: argv[0] + ": no such command"}
	}
	h.mu.Lock()
	h.begun[start.ID]++
	h.mu.Unlock()
	p := &program{running: &h.running, killed: make(chan struct{}), done: make(chan struct{})}
	p.stdout, p.out = io.Pipe()
	p.stderr, p.err = io.Pipe()
	var in io.Reader = bytes.NewReader(nil)
	if start.Stdin || start.Terminal != nil {
		r, w := io.Pipe()
		in, p.stdin = r, w
	}
	h.running.Go(func() {
		code := run(argv[1:], in, p)
		p.finish(serve.Status{Code: code})
	})
	return p, nil
}

// commands are the known commands. Each returns its exit code.
var commands = map[string]func(args []string, stdin io.Reader, p *program) int{
	"true":  func([]string, io.Reader, *program) int { return 0 },
	"false": func([]string, io.Reader, *program) int { return 1 },
	"echo": func(args []string, _ io.Reader, p *program) int {
		fmt.Fprintln(p.out, strings.Join(args, " "))
		return 0
	},
	"stderr": func(args []string, _ io.Reader, p *program) int {
		fmt.Fprintln(p.err, strings.Join(args, " "))
		return 1
	},
	"cat": func(_ []string, stdin io.Reader, p *program) int {
		_, _ = io.Copy(p.out, stdin)
		return 0
	},
	"sleep": func(args []string, _ io.Reader, p *program) int {
		seconds, err := strconv.ParseFloat(args[0], 64)
		if err != nil {
			return 2
		}
		select {
		case <-time.After(time.Duration(seconds * float64(time.Second))):
		case <-p.killed:
		}
		return 0
	},
	"exit": func(args []string, _ io.Reader, _ *program) int {
		code, _ := strconv.Atoi(args[0])
		return code
	},
	// lines prints text of this many bytes, in lines.
	"lines": func(args []string, _ io.Reader, p *program) int {
		left, _ := strconv.Atoi(args[0])
		block := bytes.Repeat([]byte("the quick brown fox jumps over the lazy dog, and over again..\n"), 512)
		for ; left > 0; left -= len(block) {
			if _, err := p.out.Write(block[:min(left, len(block))]); err != nil {
				return 1
			}
		}
		return 0
	},
	// pace prints this many bytes per second for this many seconds, in pieces of a millisecond.
	// Each begins with the time in nanoseconds.
	"pace": func(args []string, _ io.Reader, p *program) int {
		perSecond, _ := strconv.Atoi(args[0])
		seconds, _ := strconv.Atoi(args[1])
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		began := time.Now()
		for printed := 0; printed < perSecond*seconds; {
			now := <-tick.C
			for due := int(now.Sub(began).Seconds() * float64(perSecond)); printed < due; printed += perSecond / 1000 {
				piece := fmt.Appendf(nil, "at=%d;", now.UnixNano())
				piece = append(piece, bytes.Repeat([]byte("."), max(0, perSecond/1000-len(piece)-1))...)
				if _, err := p.out.Write(append(piece, '\n')); err != nil {
					return 1
				}
			}
		}
		return 0
	},
	// count prints this many numbered lines, with a pause of microseconds after each, and exits
	// with 7. With a third argument it waits before that line until stdin ends.
	"count": func(args []string, stdin io.Reader, p *program) int {
		lines, _ := strconv.Atoi(args[0])
		pause, _ := strconv.Atoi(args[1])
		for i := range lines {
			if len(args) > 2 && args[2] == strconv.Itoa(i) {
				_, _ = io.Copy(io.Discard, stdin)
			}
			if _, err := fmt.Fprintf(p.out, "%d\n", i); err != nil {
				return 1
			}
			select {
			case <-time.After(time.Duration(pause) * time.Microsecond):
			case <-p.killed:
				return 1
			}
		}
		return 7
	},
	"zeros": func(args []string, _ io.Reader, p *program) int {
		left, _ := strconv.Atoi(args[0])
		for block := make([]byte, 32<<10); left > 0; left -= len(block) {
			block = block[:min(left, len(block))]
			if _, err := p.out.Write(block); err != nil {
				return 1
			}
		}
		return 0
	},
}

// A program is one running command.
type program struct {
	running        *sync.WaitGroup // of the host
	stdin          *io.PipeWriter
	stdout, stderr *io.PipeReader
	out, err       *io.PipeWriter
	kill           sync.Once
	killed         chan struct{}
	finished       sync.Once
	status         serve.Status
	done           chan struct{}
}

// finish sets the command's status; only the first call counts.
func (p *program) finish(status serve.Status) {
	p.finished.Do(func() {
		p.status = status
		_, _ = p.out.Close(), p.err.Close()
		close(p.done)
	})
}

// Pipes implements serve.Process.
func (p *program) Pipes() (io.WriteCloser, io.Reader, io.Reader) {
	if p.stdin == nil {
		return nil, p.stdout, p.stderr
	}
	return p.stdin, p.stdout, p.stderr
}

// Wait implements serve.Process.
func (p *program) Wait() serve.Status {
	<-p.done
	return p.status
}

// Kill implements serve.Process.
func (p *program) Kill(time.Duration) {
	p.end("SIGKILL")
	if p.stdin != nil {
		_ = p.stdin.Close()
	}
}

// Resize implements serve.Process. It prints the size.
func (p *program) Resize(size agent.Size) {
	p.running.Go(func() { _, _ = fmt.Fprintf(p.out, "%dx%d\n", size.Columns, size.Rows) })
}

// Signal implements serve.Process. It ends the command.
func (p *program) Signal(name string) bool {
	p.end(name)
	return true
}

// end ends the command with a signal. It sets the status first, so that the function's later result
// doesn't count.
func (p *program) end(signal string) {
	p.finish(serve.Status{Signal: signal})
	p.kill.Do(func() { close(p.killed) })
}

// Measure implements serve.Process. Every command uses a second and two processes.
func (p *program) Measure() serve.Measure {
	return serve.Measure{CPU: time.Second, Processes: 2}
}

// Now implements serve.Process.
func (p *program) Now() (now agent.Used) {
	now.User, now.Memory, now.Processes = time.Second, 1<<20, 2
	return now
}

// Now implements serve.Executor.
func (h *programs) Now() (now agent.Used) {
	now.User, now.Memory, now.Processes = time.Minute, 2<<20, 3
	return now
}

// Warm implements serve.Executor.
func (h *programs) Warm(agent.Warm) (agent.Warmed, error) {
	return agent.Warmed{}, &agent.Error{Code: agent.ErrInvalid, Message: "this runner can't load an interpreter"}
}

// StartedWarm implements serve.Process.
func (p *program) StartedWarm() (warm bool, cold string) { return false, "" }

// Excessive implements serve.Process.
func (p *program) Excessive() bool { return false }

// Refused implements serve.Process.
func (p *program) Refused() int64 { return 0 }

// Close implements serve.Process.
func (p *program) Close() serve.Usage { return serve.Usage{} }

// List implements serve.Executor.
func (h *programs) List(_ agent.ListDir, each func(agent.FileInfo) error) error {
	h.mu.Lock()
	var all []agent.FileInfo
	for path, data := range h.files {
		all = append(all, h.info(path, data))
	}
	h.mu.Unlock()
	slices.SortFunc(all, func(a, b agent.FileInfo) int { return bytes.Compare(a.Path, b.Path) })
	for _, info := range all {
		if err := each(info); err != nil {
			return err
		}
	}
	return nil
}

// Stat implements serve.Executor.
func (h *programs) Stat(path string, _ bool) (agent.FileInfo, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	data, ok := h.files[inWorkspace(path)]
	if !ok {
		return agent.FileInfo{}, &agent.Error{Code: agent.ErrNotFound, Path: path, Message: "no such file"}
	}
	return h.info(path, data), nil
}

// Open implements serve.Executor.
func (h *programs) Open(path string) (agent.FileInfo, io.ReadSeekCloser, error) {
	info, err := h.Stat(path, true)
	if err != nil {
		return info, nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return info, openFile{bytes.NewReader(h.files[inWorkspace(path)])}, nil
}

// inWorkspace returns the key of a path in programs.files.
func inWorkspace(path string) string { return strings.TrimPrefix(path, "/workspace/") }

type openFile struct{ *bytes.Reader }

// Close implements io.Closer.
func (openFile) Close() error { return nil }

// Move implements serve.Files, of files only.
func (h *programs) Move(move agent.Move) (agent.FileInfo, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	data, ok := h.files[inWorkspace(move.From)]
	if !ok {
		return agent.FileInfo{}, &agent.Error{Code: agent.ErrNotFound, Path: move.From, Message: "no such file or directory"}
	}
	if _, taken := h.files[inWorkspace(move.To)]; taken {
		return agent.FileInfo{}, &agent.Error{Code: agent.ErrDenied, Field: "to", Path: move.To, Message: "already exists, and a move never replaces an entry: delete it first"}
	}
	delete(h.files, inWorkspace(move.From))
	h.files[inWorkspace(move.To)] = data
	h.change(agent.ChangeRemoved, inWorkspace(move.From))
	h.change(agent.ChangeCreated, inWorkspace(move.To))
	return h.info(move.To, data), nil
}

// Update implements serve.Executor.
func (h *programs) Update(update agent.Update) (func(func(int) io.Reader) (agent.Updated, error), error) {
	return func(content func(int) io.Reader) (agent.Updated, error) {
		updated := agent.Updated{Written: []string{}, Deleted: []string{}}
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(update.Empty) > 0 {
			clear(h.files)
			updated.Deleted = append(updated.Deleted, update.Empty...)
		}
		for _, path := range update.Delete {
			if h.protected[path] && !update.Protected {
				updated.Failed = append(updated.Failed, agent.Failure{Path: path, Code: agent.ErrDenied, Message: "permission denied"})
				continue
			}
			delete(h.files, path)
			h.change(agent.ChangeRemoved, path)
			updated.Deleted = append(updated.Deleted, path)
		}
		for i, write := range update.Write {
			if write.Directory {
				continue
			}
			data, err := io.ReadAll(content(i))
			if err != nil {
				return updated, err
			}
			h.files[write.Path], h.protected[write.Path] = data, update.Protected
			h.change(agent.ChangeCreated, write.Path)
			updated.Written = append(updated.Written, write.Path)
			if len(update.Write)+len(update.Delete) == 1 {
				info := h.info(write.Path, data)
				updated.File = &info
			}
		}
		return updated, nil
	}, nil
}

// info describes a file.
func (h *programs) info(path string, data []byte) agent.FileInfo {
	owner := "runner"
	if h.protected[inWorkspace(path)] {
		owner = "root"
	}
	return agent.FileInfo{Path: []byte(path), Type: "file", Size: int64(len(data)), Mode: 0o644, Owner: owner, Group: owner}
}
