package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/commandline"
)

// A house is where one server after the other lives: always at the same address
// and with the same data, so that clients only see that it doesn't answer for
// a moment. One goroutine starts and ends servers; everything else may be
// called at once.
type house struct {
	*client.Client
	program  string
	address  string
	url      string
	data     string
	group    string // the cgroup below which its runners are
	log      string // a file: of all servers
	args     []string
	ledger   *ledger
	counters *usage
	up       atomic.Bool   // a server answers
	nomad    *nomad        // that has the runners; nil: they are on this machine
	patient  client.Sender // of what is safe to repeat, until a server answers
}

// newHouse chooses an address that nobody else on this machine binds to or
// connects from: of the loopback network, by this process's id.
func newHouse(ctx context.Context, program, dir string, l *ledger) (*house, error) {
	pid := os.Getpid()
	host := fmt.Sprintf("127.%d.%d.%d", 100+pid>>16%100, pid>>8%256, pid%254+1)
	free, err := (&net.ListenConfig{}).Listen(ctx, "tcp", host+":0")
	if err != nil {
		return nil, err
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		return nil, err
	}
	h := &house{
		Client: client.New("http://" + address), program: program, address: address, url: "http://" + address,
		data: filepath.Join(dir, "disk", "data"), log: filepath.Join(dir, "server.log"), group: fmt.Sprintf("rockpool/chaos-%d", pid),
		ledger: l, counters: newUsage(),
	}
	h.patient = h.Around(h.insist)
	// What a runner is promised is reckoned from the machine's memory, as it is.
	h.args = []string{"serve", "--end-with-stdin", "--config", os.DevNull, "--listen", address, "--data", h.data,
		"--cgroup-parent", h.group, "--memory-overcommit", "1", "--alert-timeout", "3", "--log-format", "json"}
	return h, nil
}

// useNomad has the runners on a Nomad that a program runs and that obeys
// (test/nomadtest/cmd).
func (h *house) useNomad(ctx context.Context, program string, progress io.Writer) (err error) {
	if h.nomad, err = startNomad(ctx, program, progress); err != nil {
		return err
	}
	h.args = append(h.args, h.nomad.flags(h.url)...)
	return nil
}

// A server is one process of the house's.
type server struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed once it has
	err   error         // of its end; read after ended
}

// start starts a server, and doesn't wait for it.
func (h *house) start(onStop string) (*server, error) {
	log, err := os.OpenFile(h.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the server has its own
	s := &server{cmd: exec.Command(h.program, append(h.args[:len(h.args):len(h.args)], "--on-stop", onStop)...), ended: make(chan struct{})}
	s.cmd.Env = commandline.Environment("ROCKPOOL_", "NOMAD_")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if _, err := s.cmd.StdinPipe(); err != nil { // it ends with it, should we be killed
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // until it ends, which every way out of a run waits for
		s.err = s.cmd.Wait()
		close(s.ended)
	}()
	return s, nil
}

// startWithin is how long a server may take until it answers, at the worst.
const startWithin = 90 * time.Second

var errEnded = errors.New("the server ended before it answered")

// answers waits until a server answers.
func (h *house) answers(ctx context.Context, s *server) error {
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
		case <-s.ended:
			return errEnded
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// kill ends a server with SIGKILL, right now.
func (h *house) kill(s *server) {
	h.up.Store(false)
	_ = s.cmd.Process.Kill() // it is ours until it was waited for
	<-s.ended
	h.counters.next()
}

// stop asks a server to end, as an upgrade does.
func (h *house) stop(s *server) {
	const patience = 10 * time.Second // it takes 5 s at most
	h.up.Store(false)
	before := len(h.logged())
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(patience, func() { _ = s.cmd.Process.Kill() })
	defer late.Stop()
	<-s.ended
	h.counters.told(lastTold(h.logged()[before:]))
	h.counters.next()
	if s.err != nil && !s.deaf() {
		h.ledger.wrong(unaskedEnds, 1, "a server that was asked to end: %v: %s", s.err, h.lastWords())
	}
}

// deaf reports whether a server was asked to end before it heard signals: the
// kernel ended it then.
func (s *server) deaf() bool {
	status, ok := s.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGTERM
}

// logged is what all servers have logged; nothing if that can't be read.
func (h *house) logged() []byte {
	text, _ := os.ReadFile(h.log)
	return text
}

// lastWords is the end of that.
func (h *house) lastWords() string {
	text := h.logged()
	return strings.TrimSpace(string(text[max(0, len(text)-600):]))
}
