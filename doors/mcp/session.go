package mcp

import (
	"context"
	"errors"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// Why sessions end.
var (
	errDeleted   = errors.New("the client ended the MCP session")
	errIdle      = errors.New("the MCP session was idle")
	errNotOpened = errors.New("the client didn't initialize the MCP session")
)

// A session is an MCP session, with the runners that were claimed in it.
type session struct {
	door     *Door
	id       string
	owner    owner
	server   *sdk.Server
	ctx      context.Context // with the caller; ends with the session
	end      context.CancelCauseFunc
	released chan struct{} // closed when it holds nothing any more

	mu         sync.Mutex // guards the rest
	connection *sdk.ServerSession
	opened     bool // the client has sent initialize
	runners    map[runtime.RunnerID]bool
	busy       int // requests
	used       time.Time
	idle       *time.Timer
}

// begin counts a request. False: the session has ended.
func (s *session) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.busy++
	if s.idle != nil {
		s.idle.Stop()
	}
	return true
}

// done ends a request.
func (s *session) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	s.used = time.Now()
	if s.busy == 0 && s.ctx.Err() == nil {
		s.idle = time.AfterFunc(s.door.idle, func() { s.endIdle() })
	}
}

func (s *session) lastUse() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// endIdle ends the session if no request is served.
func (s *session) endIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy == 0 {
		s.end(errIdle)
	}
	return s.busy == 0
}

// connected keeps the SDK's session, before a message is handled.
func (s *session) connected(connection *sdk.ServerSession, method string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connection = connection
	s.opened = s.opened || method == "initialize"
}

// counts reports whether it is one of the sessions that are bounded. Clients ask for the versions of the protocol first, with
// a message that opens none.
func (s *session) counts() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connection == nil || s.opened
}

// initialized reports whether the client has opened it.
func (s *session) initialized() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened && s.connection.InitializeParams() != nil
}

// run waits for the session's end, and releases what it holds. Its calls end first: their contexts have.
func (s *session) run(ctx context.Context) {
	<-ctx.Done()
	s.end(context.Cause(ctx)) // where the server stops
	s.door.forget(s)
	s.mu.Lock()
	connection := s.connection
	if s.idle != nil {
		s.idle.Stop()
	}
	s.mu.Unlock()
	if connection != nil {
		_ = connection.Close() // it waits for the calls
	}
	for id := range s.runners { // no call is left that would change it
		s.release(id)
	}
	close(s.released)
}

// hold makes a runner one of the session's. A session that has ended releases it.
func (s *session) hold(id runtime.RunnerID) error {
	s.mu.Lock()
	s.runners[id] = true
	ended := s.ctx.Err() != nil
	s.mu.Unlock()
	if ended {
		s.drop(id)
		return context.Cause(s.ctx)
	}
	return nil
}

// holds returns RUNNER_GONE for a runner that isn't one of the session's.
func (s *session) holds(id runtime.RunnerID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.runners[id] {
		return runtime.Errorf(runtime.CodeRunnerGone, "session %q isn't there (any more)", id)
	}
	return nil
}

// drop releases a runner of the session's. False: its claim had ended before.
func (s *session) drop(id runtime.RunnerID) bool {
	s.mu.Lock()
	delete(s.runners, id)
	s.mu.Unlock()
	return s.release(id)
}

func (s *session) release(id runtime.RunnerID) bool {
	released, err := s.door.host.Guard.Release(context.WithoutCancel(s.ctx), id)
	if err != nil {
		s.door.host.Logger.Warn("a runner of an MCP session was left to its inactivity timeout", zap.String("runner", string(id)), zap.Error(err))
	}
	return released
}
