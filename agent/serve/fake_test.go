package serve_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/serve"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fakeHost runs functions as commands.
type fakeHost struct {
	commands map[string]func(p *fakeProcess)

	mu      sync.Mutex
	started int
	kills   []time.Duration
	sizes   []agent.Size
	signals []string
	left    int // searches and watches whose client left
}

// A fakeProcess is one such function while it runs.
type fakeProcess struct {
	host           *fakeHost
	start          agent.Start
	at             time.Time // of the start
	stdin          io.ReadCloser
	in             *io.PipeWriter
	stdout, stderr *io.PipeWriter
	out, err       *io.PipeReader
	killed         chan struct{} // closed by the Kill that ends it
	once           sync.Once
	ended          chan struct{}
	status         serve.Status
	measured       int            // how often what it uses was; guarded by the host's mu
	background     sync.WaitGroup // what outlives the command
}

func (h *fakeHost) Adopt(agent.Start, []*os.File) (serve.Process, error) {
	return nil, &agent.Error{Code: agent.ErrInternal, Message: "the fake has no cells"}
}

func (h *fakeHost) Start(start agent.Start) (serve.Process, error) {
	command, ok := h.commands[start.Argv[0]]
	if !ok {
		return nil, &agent.Error{Code: agent.ErrNotFound, Field: "argv", Message: "command not found"}
	}
	h.mu.Lock()
	h.started++
	h.mu.Unlock()
	p := &fakeProcess{host: h, start: start, at: time.Now(), killed: make(chan struct{}), ended: make(chan struct{})}
	p.out, p.stdout = io.Pipe()
	p.err, p.stderr = io.Pipe()
	if start.Stdin || start.Terminal != nil {
		p.stdin, p.in = io.Pipe()
	}
	go func() {
		command(p)
		select {
		case <-p.killed:
			p.status = serve.Status{Signal: "SIGKILL"}
		default:
		}
		close(p.ended)
		p.background.Wait()
		_ = p.stdout.Close()
		_ = p.stderr.Close()
		if p.stdin != nil {
			_ = p.stdin.Close()
		}
	}()
	return p, nil
}

func (p *fakeProcess) Pipes() (io.WriteCloser, io.Reader, io.Reader) {
	if p.in == nil {
		return nil, p.out, p.err
	}
	return p.in, p.out, p.err
}

func (p *fakeProcess) Wait() serve.Status {
	<-p.ended
	return p.status
}

func (p *fakeProcess) Kill(grace time.Duration) {
	p.host.mu.Lock()
	p.host.kills = append(p.host.kills, grace)
	p.host.mu.Unlock()
	if grace > 0 {
		select {
		case <-p.ended:
		case <-p.killed:
		case <-time.After(grace):
		}
	}
	p.once.Do(func() { close(p.killed) })
	<-p.ended
	p.background.Wait()
}

func (p *fakeProcess) Resize(size agent.Size) {
	p.host.mu.Lock()
	defer p.host.mu.Unlock()
	p.host.sizes = append(p.host.sizes, size)
}

func (p *fakeProcess) Signal(name string) bool {
	p.host.mu.Lock()
	defer p.host.mu.Unlock()
	p.host.signals = append(p.host.signals, name)
	return name != "SIGNONE"
}

// Measure returns the usage that the command's second argument names: none, or two cores since its
// start. It has three processes.
func (p *fakeProcess) Measure() serve.Measure {
	used := time.Duration(0)
	if len(p.start.Argv) > 1 {
		used, _ = time.ParseDuration(p.start.Argv[1])
		if p.start.Argv[1] == "two cores" {
			used = 2 * time.Since(p.at)
		}
	}
	return serve.Measure{CPU: used, Processes: 3}
}

// Now implements [serve.Process]. Its values grow with each call.
func (p *fakeProcess) Now() (now agent.Used) {
	p.host.mu.Lock()
	defer p.host.mu.Unlock()
	p.measured++
	now.User, now.System = time.Duration(p.measured)*time.Second, time.Second
	now.Memory, now.PeakMemory, now.Processes, now.PeakProcesses = 10<<20, 20<<20, 2, 3
	return now
}

// Now implements [serve.Host].
func (h *fakeHost) Now() (now agent.Used) {
	now.User, now.Memory, now.Processes = time.Minute, 30<<20, 4
	return now
}

// StartedWarm implements [serve.Process].
func (p *fakeProcess) StartedWarm() (warm bool, cold string) { return false, "" }

// Warm implements [serve.Executor].
func (h *fakeHost) Warm(agent.Warm) (agent.Warmed, error) {
	return agent.Warmed{}, &agent.Error{Code: agent.ErrInvalid, Message: "this runner can't load an interpreter"}
}

// Excessive implements [serve.Process].
func (p *fakeProcess) Excessive() bool { return p.start.Argv[0] == "excessive" }

// Refused implements [serve.Process]: the command "crowded" was refused a fork.
func (p *fakeProcess) Refused() int64 {
	if p.start.Argv[0] == "crowded" {
		return 1001
	}
	return 0
}

func (p *fakeProcess) Close() serve.Usage {
	return serve.Usage{User: time.Second, PeakMemory: 1 << 20}
}

var errFake = errors.New("a secret of the host")

func (h *fakeHost) List(list agent.ListDir, each func(agent.FileInfo) error) error {
	for i := range 1000 {
		if err := each(agent.FileInfo{Path: fmt.Appendf(nil, "%s/%d", list.Path, i), Type: "file"}); err != nil {
			return err
		}
	}
	if list.Recursive {
		return errFake
	}
	return nil
}

func (h *fakeHost) Stat(path string, _ bool) (agent.FileInfo, error) {
	if path == "secret" {
		return agent.FileInfo{}, errFake
	}
	return agent.FileInfo{Path: []byte(path), Type: "file"}, nil
}

func (h *fakeHost) Open(path string) (agent.FileInfo, io.ReadSeekCloser, error) {
	info := agent.FileInfo{Path: []byte(path), Type: "file", Size: 100_000}
	text := strings.Repeat("x", 99_999) + "y"
	switch path {
	case "short":
		text = text[:50_000]
	case "broken":
		return info, fakeFile{strings.NewReader("x"), &failingReader{}}, nil
	}
	return info, fakeFile{strings.NewReader(text), eof{}}, nil
}

// A fakeFile is a text, followed by more.
type fakeFile struct {
	*strings.Reader
	then io.Reader
}

func (f fakeFile) Read(p []byte) (int, error) {
	if n, err := f.Reader.Read(p); err == nil {
		return n, nil
	}
	return f.then.Read(p)
}

func (fakeFile) Close() error { return nil }

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

type failingReader struct{}

func (*failingReader) Read([]byte) (int, error) { return 0, errFake }

func (h *fakeHost) Move(move agent.Move) (agent.FileInfo, error) {
	if move.To == "there" {
		return agent.FileInfo{}, &agent.Error{Code: agent.ErrDenied, Field: "to", Path: move.To}
	}
	return agent.FileInfo{Path: []byte(move.To), Size: int64(len(move.From))}, nil
}

func (h *fakeHost) Search(ctx context.Context, search agent.Search) (agent.Found, error) {
	switch search.Path {
	case "secret":
		return agent.Found{}, errFake
	case "long":
		<-ctx.Done()
		h.mu.Lock()
		h.left++
		h.mu.Unlock()
		return agent.Found{}, ctx.Err()
	}
	return agent.Found{Matches: []agent.Match{{File: agent.FileInfo{Path: []byte("a\xff"), Type: "file"}, Line: 3, Text: search.Text}}, Limit: agent.LimitBytes, Skipped: 2}, nil
}

func (h *fakeHost) Watch(ctx context.Context, watch agent.Watch, each func(agent.Changes) error) error {
	if watch.Path == "none" {
		return &agent.Error{Code: agent.ErrNotFound, Path: watch.Path}
	}
	if err := each(agent.Changes{}); err != nil {
		return err
	}
	switch watch.Path {
	case "secret":
		return errFake
	case "flood":
		for i := 0; ; i++ {
			if err := each(agent.Changes{Changes: []agent.Change{{Path: fmt.Append(nil, i), Kind: agent.ChangeCreated}}}); err != nil {
				h.mu.Lock()
				h.left++
				h.mu.Unlock()
				return err
			}
		}
	}
	if err := each(agent.Changes{Changes: []agent.Change{{Path: []byte("a\xff"), Kind: agent.ChangeRemoved}}, Lost: true}); err != nil {
		return err
	}
	if watch.Recursive {
		return &agent.Error{Code: agent.ErrTooMany, Path: watch.Path, Message: "too much"}
	}
	<-ctx.Done()
	h.mu.Lock()
	h.left++
	h.mu.Unlock()
	return nil
}

func (h *fakeHost) Update(update agent.Update) (func(func(i int) io.Reader) (agent.Updated, error), error) {
	if len(update.Delete) > 0 {
		return nil, &agent.Error{Code: agent.ErrDenied, Field: "delete", Index: 1}
	}
	return func(content func(i int) io.Reader) (u agent.Updated, err error) {
		for i, w := range update.Write {
			switch {
			case w.Directory:
				u.Written = append(u.Written, w.Path)
			case w.Path == "full": // takes a part only
				_, err = io.CopyN(io.Discard, content(i), w.Size/2)
				u.Failed = append(u.Failed, agent.Failure{Path: w.Path})
			case w.Path == "ignored":
				content(i)
			default:
				var all []byte
				all, err = io.ReadAll(content(i))
				u.Written = append(u.Written, fmt.Sprint(w.Path, len(all), string(all[:1])))
			}
			if err != nil {
				return u, err
			}
		}
		return u, nil
	}, nil
}

// A fixture is a server with a fake host.
type fixture struct {
	t      *testing.T
	host   *fakeHost
	server *serve.Server
}

func newFixture(t *testing.T, commands map[string]func(p *fakeProcess)) *fixture {
	f := &fixture{t: t, host: &fakeHost{commands: commands}}
	f.server = serve.New(f.host, serve.Config{})
	t.Cleanup(f.server.Close)
	return f
}

func (f *fixture) dial() net.Conn {
	ours, theirs := net.Pipe()
	go f.server.Handle(context.Background(), theirs)
	return ours
}

func (f *fixture) start(start agent.Start) *agent.Session {
	f.t.Helper()
	if start.ID == "" {
		start.ID = start.Argv[0]
	}
	s, err := agent.StartExecution(f.t.Context(), f.dial(), start)
	if err != nil {
		f.t.Fatalf("start: %v", err)
	}
	f.t.Cleanup(func() { _ = s.Close() })
	return s
}

func (f *fixture) attach(id string, offset int64) *agent.Session {
	f.t.Helper()
	s, err := agent.AttachExecution(f.t.Context(), f.dial(), agent.Attach{ID: id, Offset: offset})
	if err != nil {
		f.t.Fatalf("attach: %v", err)
	}
	f.t.Cleanup(func() { _ = s.Close() })
	return s
}

// follow reads to the exit. It acknowledges output on request.
func (f *fixture) follow(s *agent.Session, ack bool) (output string, events []agent.Event, exit agent.Exit) {
	f.t.Helper()
	var all strings.Builder
	for {
		event, err := s.Next()
		if err != nil {
			f.t.Fatalf("next: %v after %d bytes", err, all.Len())
		}
		switch event.Kind {
		case agent.KindOutput:
			all.Write(event.Data)
			if ack {
				if err := s.Ack(event.Offset + int64(len(event.Data))); err != nil {
					f.t.Fatalf("ack: %v", err)
				}
			}
			event.Data = append([]byte{}, event.Data...)
			events = append(events, event)
		case agent.KindExited:
			return all.String(), events, event.Exit
		}
	}
}
