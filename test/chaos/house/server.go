// Package house runs one server after the other, at one address and with one data
// directory, and what they stand on: sandboxes, a disk, a Nomad. It can harm these,
// counts what the servers say of themselves, and finds what they leave.
package house

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/chaos/ledger"
	"github.com/rockpool/rockpool/test/commandline"
	"github.com/rockpool/rockpool/test/postgrestest"
)

// A House is where one server after the other lives: always at the same address
// and with the same data, so that clients only see that it doesn't answer for
// a moment. One goroutine starts and ends servers; everything else may be
// called at once.
type House struct {
	*client.Client
	Patient client.Sender // of what is safe to repeat, until a server answers
	Ledger  *ledger.Ledger
	Nomad   *Nomad // that has the runners; nil: they are on this machine
	Log     string // a file: of all servers

	Database *postgrestest.Server // that several servers share; nil: there is one server

	program  string
	address  string
	url      string
	data     string
	seats    []*seat      // one, but for several servers
	front    net.Listener // passes on to them; nil: there is one
	group    string       // the cgroup below which its runners are
	args     []string
	counters *usage
	up       atomic.Bool // a server answers
}

// New returns a house without a server. It chooses an address that nobody else on this
// machine binds to or connects from: of the loopback network, by this process's id.
func New(ctx context.Context, program, dir string, l *ledger.Ledger) (*House, error) {
	pid := os.Getpid()
	host := fmt.Sprintf("127.%d.%d.%d", 100+pid>>16%100, pid>>8%256, pid%254+1)
	address, err := freeAddress(ctx, host)
	if err != nil {
		return nil, err
	}
	h := &House{
		Client: client.New("http://" + address), program: program, address: address, url: "http://" + address,
		data: filepath.Join(dir, "disk", "data"), Log: filepath.Join(dir, "server.log"), group: fmt.Sprintf("rockpool/chaos-%d", pid),
		Ledger: l, counters: newUsage(),
	}
	h.Patient = h.Around(h.Insist)
	// What a runner is promised is reckoned from the machine's memory, as it is.
	h.args = []string{"serve", "--end-with-stdin", "--config", os.DevNull,
		"--cgroup-parent", h.group, "--memory-overcommit", "1", "--alert-timeout", "3", "--log-format", "json"}
	h.seats = []*seat{{address: address, args: []string{"--listen", address, "--data", h.data}}}
	return h, nil
}

// UseNomad has the runners on a Nomad that a program runs and that obeys
// (test/nomadtest/cmd), of so many clients, with a driver.
func (h *House) UseNomad(ctx context.Context, program, driver string, clients int, progress io.Writer) (err error) {
	if h.Nomad, err = startNomad(ctx, program, driver, clients, progress); err != nil {
		return err
	}
	h.args = append(h.args, h.Nomad.flags(h.url)...)
	return nil
}

// A Server is one process of the house's.
type Server struct {
	cmd   *exec.Cmd
	Ended chan struct{} // closed once it has
	Err   error         // of its end; read after ended
}

// Start starts a server where none is, and doesn't wait for it.
func (h *House) Start(onStop string) (*Server, error) {
	at := slices.IndexFunc(h.seats, (*seat).free)
	if at < 0 {
		return nil, errors.New("there is no place for one more server")
	}
	args := slices.Concat(h.args, h.seats[at].args, []string{"--on-stop", onStop})
	log, err := os.OpenFile(h.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the server has its own
	s := &Server{cmd: exec.Command(h.program, args...), Ended: make(chan struct{})}
	s.cmd.Env = commandline.Environment("ROCKPOOL_", "NOMAD_")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if _, err := s.cmd.StdinPipe(); err != nil { // it ends with it, should we be killed
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	h.seats[at].server = s
	go func() { // until it ends, which every way out of a run waits for
		s.Err = s.cmd.Wait()
		close(s.Ended)
	}()
	return s, nil
}

// startWithin is how long a server may take until it answers, at the worst.
const startWithin = 90 * time.Second

// ErrEnded says that a server ended before it answered.
var ErrEnded = errors.New("the server ended before it answered")

// Answers waits until a server answers.
func (h *House) Answers(ctx context.Context, s *Server) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startWithin, fmt.Errorf("no answer within %s", startWithin))
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := client.GetVersion(ctx, h); err == nil {
			h.up.Store(true)
			return nil
		}
		select {
		case <-tick.C:
		case <-s.Ended:
			return ErrEnded
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Kill ends a server with SIGKILL, right now.
func (h *House) Kill(s *Server) {
	h.up.Store(false)
	_ = s.cmd.Process.Kill() // it is ours until it was waited for
	<-s.Ended
	h.counters.next()
}

// Stop asks a server to end, as an upgrade does.
func (h *House) Stop(s *Server) {
	const patience = 10 * time.Second // it takes 5 s at most
	h.up.Store(false)
	before := len(h.logged())
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(patience, func() { _ = s.cmd.Process.Kill() })
	defer late.Stop()
	<-s.Ended
	h.counters.told(lastTold(h.logged()[before:]))
	h.counters.next()
	if s.Err != nil && !s.deaf() {
		h.Ledger.Wrong(ledger.UnaskedEnds, 1, "a server that was asked to end: %v: %s", s.Err, h.LastWords())
	}
}

// deaf reports whether a server was asked to end before it heard signals: the
// kernel ended it then.
func (s *Server) deaf() bool {
	status, ok := s.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGTERM
}

// logged is what all servers have logged; nothing if that can't be read.
func (h *House) logged() []byte {
	text, _ := os.ReadFile(h.Log)
	return text
}

// LastWords is the end of what all servers have logged.
func (h *House) LastWords() string {
	text := h.logged()
	return strings.TrimSpace(string(text[max(0, len(text)-600):]))
}
