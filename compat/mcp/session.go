package mcp

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/compat"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/quota"
)

// The reasons why sessions end.
var (
	errDeleted   = errors.New("the client ended the MCP session")
	errIdle      = errors.New("the MCP session was idle")
	errNotOpened = errors.New("the client didn't initialize the MCP session")
	errLeft      = errors.New("the client closed the connection before the call began")
)

// A session is an MCP session with the runners that were claimed in it. Its methods are safe for
// concurrent use.
type session struct {
	api      *API
	id       string
	owner    owner
	server   *sdk.Server
	ctx      context.Context // has the caller; ends with the session
	end      context.CancelCauseFunc
	released chan struct{} // closed by run when the session holds no runners any longer

	mu         sync.Mutex // guards the fields below
	connection *sdk.ServerSession
	opened     bool // the client has sent initialize
	runners    map[runtime.RunnerID]bool
	busy       int                 // requests being served
	served     map[string]*request // by the value of the header requestKey
	used       time.Time
	idle       *time.Timer
	kept       *quota.Kept
}

// begin counts a request. It returns false if the session has ended.
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

// done ends a request. If the session has ended meanwhile, the last request closes a connection
// that was made since.
func (s *session) done() {
	s.mu.Lock()
	s.busy--
	s.used = time.Now()
	last, ended, connection := s.busy == 0, s.ctx.Err() != nil, s.connection
	if last && !ended {
		s.idle = time.AfterFunc(s.api.idle, func() { s.endIdle() })
	}
	s.mu.Unlock()
	if last && ended && connection != nil {
		_ = connection.Close()
	}
}

// requestKey is a header that no client can send, because its name has a space. The SDK passes the
// headers of a request on to its calls, but not its context.
const requestKey = "rockpool request"

// serve serves a request and waits for its calls. They continue when the client closes the
// connection, and still use the request's memory.
func (s *session) serve(w http.ResponseWriter, r *http.Request, protocol http.Handler) {
	key, serving := uuid.NewString(), &request{hold: compat.ReservationOf(r)}
	r.Header = r.Header.Clone()
	r.Header[requestKey] = []string{key}
	s.mu.Lock()
	s.served[key] = serving
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.served, key)
		s.mu.Unlock()
		serving.calls.Wait()
	}()
	protocol.ServeHTTP(w, r)
}

// begins makes a call's request wait for the call until done is called. The error says that the
// request has ended.
func (s *session) begins(of *sdk.RequestExtra) (served *request, done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range of.Header[requestKey] {
		if served := s.served[key]; served != nil {
			served.calls.Add(1)
			return served, served.calls.Done, nil
		}
	}
	return nil, nil, errLeft
}

// lastUse returns when the last request ended. Without any, it is when the session was opened.
func (s *session) lastUse() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// endIdle ends the session if no request is being served, and reports whether it did.
func (s *session) endIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy == 0 {
		s.end(errIdle)
	}
	return s.busy == 0
}

// connected stores the SDK's session, before a message is handled.
func (s *session) connected(connection *sdk.ServerSession, method string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connection = connection
	s.opened = s.opened || method == "initialize"
}

// counts reports whether the session counts towards the limits. One whose only request asked for
// protocol versions doesn't.
func (s *session) counts() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connection == nil || s.opened
}

// initialized reports whether the client has sent initialize.
func (s *session) initialized() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened && s.connection.InitializeParams() != nil
}

// run waits for the session's end and releases its runners. It doesn't wait for calls, which a
// client that doesn't read could prolong. If such a call claims a runner afterwards, hold releases
// it.
func (s *session) run(ctx context.Context) {
	<-ctx.Done()
	s.end(context.Cause(ctx)) // if the server stops
	s.api.forget(s)
	s.mu.Lock()
	connection, runners := s.connection, s.runners
	s.runners = map[runtime.RunnerID]bool{}
	if s.idle != nil {
		s.idle.Stop()
	}
	s.mu.Unlock()
	for id := range runners {
		s.release(id)
	}
	// delete waits for this, but not for the calls.
	close(s.released)
	if connection != nil {
		_ = connection.Close() // waits for the calls
	}
}

// hold adds a runner to the session. If the session has ended, it releases the runner instead.
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

// holds returns RUNNER_GONE for a runner that doesn't belong to the session.
func (s *session) holds(id runtime.RunnerID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.runners[id] {
		return runtime.Errorf(runtime.CodeRunnerGone, "session %q doesn't exist or has ended: open a new one", id)
	}
	return nil
}

// lost forgets a runner that no longer exists.
func (s *session) lost(id runtime.RunnerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.runners, id)
}

// drop releases a runner of the session. It returns false if the runner's claim had ended before.
func (s *session) drop(id runtime.RunnerID) bool {
	s.lost(id)
	return s.release(id)
}

// release releases a runner, also after the session's end. It returns false if the claim had ended,
// or if releasing failed, which it logs.
func (s *session) release(id runtime.RunnerID) bool {
	released, err := s.api.services.Engine.Runners.Release(context.WithoutCancel(s.ctx), id)
	if err != nil {
		s.api.services.Logger.Warn("a runner of an MCP session couldn't be released; its inactivity timeout will end it", zap.String("runner", string(id)), zap.Error(err))
	}
	return released
}
