package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime/backoff"
)

const (
	maxExecutions  = 256              // that run or weren't settled
	maxRemembered  = 256              // ids of settled executions, so that a late start doesn't run a command twice
	maxTransfers   = 16               // concurrent transfers: each may block a thread
	maxWatches     = 8                // concurrent watches: each holds an inotify instance, of which the runner's root has 16
	requestTimeout = 30 * time.Second // for the request of a new stream
	acceptPause    = 20 * time.Millisecond
	maxID          = 128 // bytes
)

// Config has the settings of a Server. The zero value is valid.
type Config struct {
	Report func(error) // called from any goroutine with errors of the executor whose text clients don't see
	Idle   func()      // called from any goroutine when all streams and executions have ended, after work other than pings
}

// A Server serves clients on streams. Its methods are safe for concurrent use.
type Server struct {
	executor  Executor
	config    Config
	budget    *budget
	transfers chan struct{}  // holds a token for each transfer
	watches   chan struct{}  // holds a token for each watch
	running   sync.WaitGroup // executions that run; Close waits for them

	mu         sync.Mutex // guards the fields below; may be held while an execution's mu is taken, not vice versa
	executions map[string]*execution
	settled    []string // ids, newest last, at most maxRemembered
	streams    int      // streams being served
	worked     bool     // something other than a ping happened since Idle was called
	closed     bool     // Close was called: no execution may start
}

// New returns a server that runs commands with an executor.
func New(executor Executor, config Config) *Server {
	return &Server{
		executor: executor, config: config, budget: newBudget(),
		transfers:  make(chan struct{}, maxTransfers),
		watches:    make(chan struct{}, maxWatches),
		executions: map[string]*execution{},
	}
}

// Serve serves every stream that listener accepts, until ctx ends or the listener fails
// permanently. It returns ctx's cause or that failure, after all streams have ended. If the machine
// or the agent lacks descriptors or memory for another stream, it retries. Executions continue
// after it returns: see Close.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	var streams sync.WaitGroup
	defer streams.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if temporary(err) {
				_ = backoff.Sleep(ctx, acceptPause)
				continue
			}
			return err
		}
		streams.Go(func() { s.Handle(ctx, conn) })
	}
}

// temporary reports whether an error of accept(2) is temporary: it concerns one stream, or the machine
// lacks a resource.
func temporary(err error) bool {
	lacks := []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED}
	return slices.ContainsFunc(lacks, func(errno error) bool { return errors.Is(err, errno) })
}

// Handle serves one stream and closes it. It returns when the stream or ctx has ended.
func (s *Server) Handle(ctx context.Context, conn net.Conn) {
	s.count(+1)
	defer s.count(-1)
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if e, ok := errors.AsType[*agent.Error](s.handle(conn)); ok {
		_ = conn.SetWriteDeadline(time.Now().Add(transferTimeout))
		_ = s.respond(conn, agent.Response{Error: e}) // the stream may be broken
	}
}

// handle serves one stream. An [*agent.Error] that it returns must be sent as the response.
func (s *Server) handle(conn net.Conn) error {
	reader := &agent.RequestReader{Conn: conn}
	frames := agent.NewFrameReader(reader, agent.AgentSide)
	_ = conn.SetReadDeadline(time.Now().Add(requestTimeout))
	kind, body, err := frames.Next()
	files := reader.Files()
	defer func() { // those that nothing took over
		for _, f := range files {
			_ = f.Close()
		}
	}()
	if err != nil || kind != agent.KindRequest {
		return err
	}
	var request agent.Request
	if err := agent.ParseJSON(body, &request); err != nil {
		return &agent.Error{Code: agent.ErrInvalid, Message: "the request is malformed"}
	}
	// A stream that follows an execution may be silent for as long as its client likes.
	_ = conn.SetReadDeadline(time.Time{})
	if request.Ping == nil {
		s.mu.Lock()
		s.worked = true
		s.mu.Unlock()
	}
	if request.Protocol != agent.Protocol {
		return &agent.Error{Code: agent.ErrIncompatible, Message: "the agent has another version of the protocol"}
	}
	if request.Start != nil && request.Start.Cell {
		cell := files
		files = nil
		return s.serve(conn, frames, request, cell)
	}
	return s.serve(conn, frames, request, nil)
}

// serve carries out a request. It returns errors that the client may see, and those of the stream.
func (s *Server) serve(conn net.Conn, frames *agent.FrameReader, request agent.Request, cell []*os.File) error {
	hello, err := encode(agent.Response{})
	if err != nil {
		return s.visible(err)
	}
	switch {
	case request.Ping != nil:
		return s.respond(conn, agent.Response{Executions: s.known()})
	case request.Start != nil:
		x, err := s.start(*request.Start, cell)
		if err != nil {
			return s.visible(err)
		}
		return s.follow(x, conn, frames, agent.Attach{}, hello)
	case request.Attach != nil:
		x, err := s.find(request.Attach.ID)
		if err != nil {
			return err
		}
		return s.follow(x, conn, frames, *request.Attach, hello)
	case request.Usage != nil:
		return s.visible(s.respond(conn, agent.Response{Usage: s.usage()}))
	case request.Warm != nil:
		return s.visible(s.warm(conn, *request.Warm))
	case request.Watch != nil:
		return s.visible(s.watch(conn, frames, *request.Watch, hello))
	case request.List != nil, request.Read != nil, request.Update != nil, request.Move != nil, request.Search != nil:
		if !s.admit() {
			return &agent.Error{Code: agent.ErrTooMany, Message: fmt.Sprintf("this runner already has %d file transfers, and none ended within %s: end one, or retry later", maxTransfers, transferPatience)}
		}
		defer func() { <-s.transfers }()
		t := &transfer{server: s, conn: conn, frames: frames, out: hello}
		return s.visible(t.run(request))
	default:
		return &agent.Error{Code: agent.ErrInvalid, Message: "the request has no operation"}
	}
}

func (s *Server) warm(conn net.Conn, warm agent.Warm) error {
	nul := func(s string) bool { return s == "" || strings.IndexByte(s, 0) >= 0 }
	switch {
	case warm.Interpreter != agent.InterpreterPython:
		return invalid("interpreter", "is unknown to this agent")
	case slices.ContainsFunc(warm.Modules, nul), slices.ContainsFunc(warm.Env, nul):
		return invalid("modules", "must not contain NUL")
	}
	warmed, err := s.executor.Warm(warm)
	if err != nil {
		return err
	}
	return s.respond(conn, agent.Response{Warmed: &warmed})
}

// admit waits for a free transfer slot. It returns false if none became free within
// transferPatience.
func (s *Server) admit() bool {
	late := time.NewTimer(transferPatience)
	defer late.Stop()
	select {
	case s.transfers <- struct{}{}:
		return true
	case <-late.C:
		return false
	}
}

func encode(response agent.Response) ([]byte, error) {
	response.Protocol = agent.Protocol
	return agent.AppendJSON(nil, agent.KindResponse, response)
}

func (s *Server) respond(conn net.Conn, response agent.Response) error {
	frame, err := encode(response)
	if err == nil {
		_, err = conn.Write(frame)
	}
	return err
}

// known returns all executions that weren't settled, by id.
func (s *Server) known() (all []agent.Execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, x := range s.executions {
		x.mu.Lock()
		all = append(all, agent.Execution{ID: id, Exited: x.exit != nil, Held: x.backlog.base})
		x.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b agent.Execution) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// start returns the execution with this id, and starts it if there is none. It takes over or closes the descriptors
// of a cell.
func (s *Server) start(start agent.Start, cell []*os.File) (*execution, error) {
	given := false
	defer func() {
		for _, f := range cell {
			if !given {
				_ = f.Close()
			}
		}
	}()
	if err := check(start); err != nil {
		return nil, err
	}
	x, fresh, err := s.register(start)
	if err != nil {
		return nil, err
	}
	// Another stream has begun it. Both streams get the same result.
	if !fresh {
		<-x.ready
		return x, x.err
	}
	// The count of register ends after run's has begun, so that Close can't return in between.
	defer s.running.Done()
	given = true
	if err := x.begin(s.executor, cell); err != nil {
		s.remove(x)
		return nil, err
	}
	s.running.Go(x.run)
	return x, nil
}

// register returns the execution with this id, or a new one. A new one (fresh) counts as running
// until the caller calls s.running.Done.
func (s *Server) register(start agent.Start) (x *execution, fresh bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok := s.executions[start.ID]
	switch {
	case ok:
		return x, false, nil
	case s.closed:
		return nil, false, &agent.Error{Code: agent.ErrInternal, Message: "the agent is shutting down"}
	case slices.Contains(s.settled, start.ID):
		return nil, false, &agent.Error{Code: agent.ErrInvalid, Field: "id", Message: "this execution has already ended and was settled"}
	case len(s.executions) >= maxExecutions:
		return nil, false, &agent.Error{Code: agent.ErrTooMany, Message: fmt.Sprintf("the runner already has %d executions that run or weren't settled", maxExecutions)}
	}
	x = newExecution(start, s.budget)
	s.executions[start.ID] = x
	s.running.Add(1)
	return x, true, nil
}

func invalid(field, message string) error {
	return &agent.Error{Code: agent.ErrInvalid, Field: field, Message: message}
}

func check(start agent.Start) error {
	nul := func(s string) bool { return strings.IndexByte(s, 0) >= 0 }
	switch {
	case start.ID == "" || len(start.ID) > maxID:
		return invalid("id", "must be 1 to 128 bytes")
	case len(start.Argv) == 0 || start.Argv[0] == "":
		return invalid("argv", "must name a command")
	case slices.ContainsFunc(start.Argv, nul):
		return invalid("argv", "must not contain NUL")
	case slices.ContainsFunc(start.Env, nul):
		return invalid("env", "must not contain NUL")
	case slices.ContainsFunc(start.Env, func(s string) bool { return strings.IndexByte(s, '=') < 1 }):
		return invalid("env", "must be NAME=value")
	case nul(start.Dir):
		return invalid("dir", "must not contain NUL")
	case start.TimeLimit < 0:
		return invalid("timeLimit", "must not be negative")
	case start.OutputLimit < 0:
		return invalid("outputLimit", "must not be negative")
	case start.Terminal != nil && start.Terminal.Check() != nil:
		return invalid("terminal", "must have 1 to 4096 columns and rows")
	}
	if l := start.Limits; l != nil && (l.CPU < 0 || l.Processes < 0 || l.OpenFiles < 0 || l.FileSize < 0) {
		return invalid("limits", "must not be negative")
	}
	return nil
}

// find returns a started execution, or ErrNotFound. It waits for a start in progress.
func (s *Server) find(id string) (*execution, error) {
	s.mu.Lock()
	x, ok := s.executions[id]
	s.mu.Unlock()
	if ok {
		<-x.ready
		ok = x.err == nil
	}
	if !ok {
		return nil, &agent.Error{Code: agent.ErrNotFound, Field: "id", Message: "the agent knows no execution with this id"}
	}
	return x, nil
}

// follow sends an execution to a client until the stream ends. It forgets the execution if the
// client settled it.
func (s *Server) follow(x *execution, conn net.Conn, frames *agent.FrameReader, from agent.Attach, hello []byte) error {
	settled, err := x.follow(conn, frames, from, hello)
	if settled {
		s.remove(x)
	}
	return err
}

// remove forgets an execution. Its id is remembered if its command was started.
func (s *Server) remove(x *execution) {
	s.mu.Lock()
	delete(s.executions, x.start.ID)
	// The id of a command that never started may be used again.
	if x.err == nil {
		if len(s.settled) >= maxRemembered {
			s.settled = append(s.settled[:0], s.settled[1:]...)
		}
		s.settled = append(s.settled, x.start.ID)
	}
	s.mu.Unlock()
	x.forget()
}

// Close kills all executions, forgets them, and returns when their processes are gone. No execution
// starts afterwards. Serve must be ended separately, by its context.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	// No execution is added after this list: register checks closed under the same lock.
	for _, x := range s.all() {
		<-x.ready
		if x.err == nil {
			x.kill(agent.CauseKill, 0)
			x.forget()
		}
	}
	s.running.Wait()
}

// count adds n to the number of streams, and calls Idle when no work is left.
func (s *Server) count(n int) {
	s.mu.Lock()
	s.streams += n
	idle := s.worked && s.streams == 0 && len(s.executions) == 0
	s.worked = s.worked && !idle
	s.mu.Unlock()
	if idle && s.config.Idle != nil {
		s.config.Idle()
	}
}

// visible converts an error of the executor to one that clients may see.
func (s *Server) visible(err error) error {
	if _, known := errors.AsType[*agent.Error](err); err == nil || known || errors.Is(err, errStream) {
		return err
	}
	if s.config.Report != nil {
		s.config.Report(err)
	}
	return &agent.Error{Code: agent.ErrInternal, Message: "the agent failed"}
}
