// Package house runs servers in sequence, at one address and with one data directory. It provides
// their sandboxes, disk and Nomad, and can harm these. It reads the servers' counters, and finds
// leftovers.
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

// A House has a sequence of servers with the same address and data. Clients only notice that the
// address doesn't answer for a moment. One goroutine starts and stops servers; all other methods
// are safe for concurrent use.
type House struct {
	*client.Client
	Patient client.Sender // retries calls that are safe to repeat until a server answers
	Ledger  *ledger.Ledger
	Nomad   *Nomad // has the runners; nil means they are on this machine
	Log     string // path of the log of all servers

	Database *postgrestest.Server // shared by several servers; nil means there is one server

	program  string
	address  string
	url      string
	data     string
	seats    []*seat      // one, unless there are several servers
	front    net.Listener // forwards connections to the servers; nil means there is one server
	group    string       // the cgroup above its runners'
	args     []string
	counters *usage
	up       atomic.Bool // a server answers
}

// New returns a house without a server. Its address is in the loopback network and derived from
// this process's id, so that nothing else on this machine binds to it or connects from it.
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
	// The size of runners is computed from this machine's memory.
	h.args = []string{"serve", "--end-with-stdin", "--config", os.DevNull,
		"--cgroup-parent", h.group, "--memory-overcommit", "1", "--alert-timeout", "3", "--log-format", "json"}
	h.seats = []*seat{{address: address, args: []string{"--listen", address, "--data", h.data}}}
	return h, nil
}

// UseNomad puts the runners on a Nomad with this many clients, with a driver. program runs that
// Nomad and takes orders (test/nomadtest/cmd).
func (h *House) UseNomad(ctx context.Context, program, driver string, clients int, progress io.Writer) (err error) {
	if h.Nomad, err = startNomad(ctx, program, driver, clients, progress); err != nil {
		return err
	}
	h.args = append(h.args, h.Nomad.flags(h.url)...)
	return nil
}

// A Server is one process of the house.
type Server struct {
	cmd   *exec.Cmd
	Ended chan struct{} // closed when it has ended
	Err   error         // of its end; valid after Ended
}

// Start starts a server in a free seat, and doesn't wait until it answers.
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
	defer func() { _ = log.Close() }() // the server has its own copy
	s := &Server{cmd: exec.Command(h.program, args...), Ended: make(chan struct{})}
	s.cmd.Env = commandline.Environment("ROCKPOOL_", "NOMAD_")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C doesn't reach it
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if _, err := s.cmd.StdinPipe(); err != nil { // it ends with its input, even if this process is killed
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	h.seats[at].server = s
	go func() { // until the server ends; every end of a run waits for that
		s.Err = s.cmd.Wait()
		close(s.Ended)
	}()
	return s, nil
}

// startWithin is the longest time that a server may take to answer.
const startWithin = 90 * time.Second

// ErrEnded means that a server ended before it answered.
var ErrEnded = errors.New("the server ended before it answered")

// Answers waits until the server answers.
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

// Kill kills the server with SIGKILL.
func (h *House) Kill(s *Server) {
	h.up.Store(false)
	_ = s.cmd.Process.Kill() // the id can't be reused before Wait
	<-s.Ended
	h.counters.next()
}

// Stop stops the server as an upgrade does.
func (h *House) Stop(s *Server) {
	const patience = 10 * time.Second // the server takes 5 s at most
	h.up.Store(false)
	// The log has earlier servers' lines too: only what follows is this server's.
	before := len(h.logged())
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(patience, func() { _ = s.cmd.Process.Kill() })
	defer late.Stop()
	<-s.Ended
	h.counters.addLogged(loggedCounters(h.logged()[before:]))
	h.counters.next()
	if s.Err != nil && !s.endedBySignal() {
		h.Ledger.Wrong(ledger.UnaskedEnds, 1, "a stopped server ended with %v: %s", s.Err, h.LastWords())
	}
}

// endedBySignal reports whether the server got the signal to stop before it handled signals, so that the
// kernel ended it.
func (s *Server) endedBySignal() bool {
	status, ok := s.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGTERM
}

// logged returns the log of all servers, or nothing if it is unreadable.
func (h *House) logged() []byte {
	text, _ := os.ReadFile(h.Log)
	return text
}

// LastWords returns the end of the log of all servers.
func (h *House) LastWords() string {
	text := h.logged()
	return strings.TrimSpace(string(text[max(0, len(text)-600):]))
}
