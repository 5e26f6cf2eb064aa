// Package mcp is the API for AI agents. It serves the Model Context Protocol over streamable HTTP
// with the official SDK. It guarantees that an agent's runners are released when its MCP session
// ends.
//
// An MCP session belongs to the token that opened it. It ends when the client deletes it, after an
// hour without a request, when its token ends, or when the server stops.
package mcp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rockpool/rockpool/compat"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

// Limits of MCP sessions.
const (
	maxSessions    = 1024 // of all tokens
	maxPerToken    = 32
	sessionBytes   = 64 << 10         // of memory
	answerTime     = 40 * time.Second // clients' libraries end a call after 60 s, and cancel its program
	idleTimeout    = time.Hour        // without a request; longer than the pauses of a person who talks to an agent
	sessionHeader  = "Mcp-Session-Id"
	unknownSession = "this MCP session doesn't exist or has ended: initialize a new one"
)

// An API serves the Model Context Protocol at /mcp.
type API struct {
	idle     time.Duration
	within   time.Duration // a call answers within it, even if its program still runs
	most     int           // limit of sessions of all tokens
	perToken int

	services compat.Services
	tools    []tool
	counts   map[string]func(failed bool, took time.Duration) // by tool

	mu       sync.Mutex // guards sessions
	sessions map[string]*session
}

// New returns the API.
func New() *API {
	return &API{idle: idleTimeout, within: answerTime, most: maxSessions, perToken: maxPerToken, sessions: map[string]*session{}}
}

// Name implements compat.API.
func (*API) Name() string { return "mcp" }

// Path implements compat.API.
func (*API) Path() string { return "/mcp" }

// Headers implements compat.API.
func (*API) Headers() []string { return []string{sessionHeader, "Mcp-Protocol-Version"} }

// Register implements compat.API.
func (a *API) Register(services compat.Services, routes *compat.Routes) {
	a.services, a.tools, a.counts = services, tools(), map[string]func(bool, time.Duration){}
	for _, t := range a.tools {
		a.counts[t.spec.Name] = routes.Counting("tools/call " + t.spec.Name)
	}
	protocol := sdk.NewStreamableHTTPHandler(serverOf, &sdk.StreamableHTTPOptions{
		MaxRequestBodyBytes:        -1,   // post has read the body
		DisableLocalhostProtection: true, // the server has checked the header Host already
	})
	by := compat.Authentication{Shown: shown, Refuse: refuse}
	routes.Handle("POST /mcp", services.Authenticated(by, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.post(w, r, protocol) })))
	routes.Handle("DELETE /mcp", services.Authenticated(by, http.HandlerFunc(a.delete)))
	others := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Allow", "POST, DELETE") // this server sends no requests of its own, so a stream by GET would be empty
		http.Error(w, "send messages by POST", http.StatusMethodNotAllowed)
	})
	routes.Handle("/mcp", services.Authenticated(by, others))
	routes.Handle("OPTIONS /mcp", others)
}

// shown returns the token in the header Authorization. The cookie of a dashboard session doesn't
// count, since agents have tokens.
func shown(r *http.Request) string {
	header := r.Header.Get("Authorization")
	if scheme, token, _ := strings.Cut(header, " "); strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	return header
}

// refuse answers a request without a valid token, or of a caller that has reached a limit.
func refuse(w http.ResponseWriter, _ *http.Request, err error) {
	if runtime.CodeOf(err) == runtime.CodeQuotaExceeded {
		tooMuch(w, err)
		return
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="rockpool"`)
	http.Error(w, runtime.MessageOf(err), http.StatusUnauthorized)
}

// A sessionKey is the key of a request's *session in its context.
type sessionKey struct{}

// serverOf returns the SDK's server of a request's session.
func serverOf(r *http.Request) *sdk.Server {
	return r.Context().Value(sessionKey{}).(*session).server
}

// post serves messages of a session, or the first message of a new one. Each body takes memory of
// its caller's limit until it is answered, as in the API.
func (a *API) post(w http.ResponseWriter, r *http.Request, protocol http.Handler) {
	body, err := a.services.ReadBody(w, r)
	if refused, ok := errors.AsType[*compat.BodyError](err); ok {
		http.Error(w, refused.Message, refused.Status)
		return
	}
	if err != nil {
		tooMuch(w, err)
		return
	}
	// Take the memory before the SDK decodes the message.
	needed, err := decoded(body)
	hold := compat.ReservationOf(r)
	switch room := hold.Room(); {
	case err != nil: // of Values, without internal details
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	case needed > room: // retrying couldn't help
		http.Error(w, fmt.Sprintf("the message is too large: in addition to its body it needs %d bytes of memory, but at most %d are left (--body-memory)", needed, room), http.StatusRequestEntityTooLarge)
		return
	}
	if err := hold.Grow(needed); err != nil {
		tooMuch(w, err)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	id, owner := r.Header.Get(sessionHeader), ownerOf(r.Context())
	s := a.find(id, owner)
	switch {
	case access.FromContext(r.Context()).Grant != nil:
		http.Error(w, "a grant can't claim runners: use a token", http.StatusForbidden)
		return
	case bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")): // a batch would count as a single operation
		http.Error(w, "send each message in a request of its own", http.StatusBadRequest)
		return
	case s == nil && id != "":
		http.Error(w, unknownSession, http.StatusNotFound)
		return
	case s == nil:
		if s, err = a.open(r.Context(), owner); err != nil {
			tooMuch(w, err)
			return
		}
	}
	// The session may have ended since find returned it.
	if !s.begin() {
		http.Error(w, unknownSession, http.StatusNotFound)
		return
	}
	defer s.done()
	s.serve(w, r.WithContext(context.WithValue(r.Context(), sessionKey{}, s)), protocol)
	// A new session ends if its first message didn't initialize it.
	if id == "" && !s.initialized() {
		s.end(errNotOpened)
	}
}

// tooMuch answers a caller that has reached a limit.
func tooMuch(w http.ResponseWriter, err error) {
	w.Header().Set("Retry-After", "10")
	http.Error(w, runtime.MessageOf(err), http.StatusTooManyRequests)
}

func (a *API) delete(w http.ResponseWriter, r *http.Request) {
	s := a.find(r.Header.Get(sessionHeader), ownerOf(r.Context()))
	if s == nil {
		http.Error(w, unknownSession, http.StatusNotFound)
		return
	}
	s.end(errDeleted)
	select { // wait until its runners are released
	case <-s.released:
	case <-r.Context().Done():
	}
	w.WriteHeader(http.StatusNoContent)
}

// An owner is the token that opened a session.
type owner struct {
	kind access.Kind
	id   string
}

func ownerOf(ctx context.Context) owner {
	p := access.FromContext(ctx)
	return owner{p.Kind, p.ID}
}

// find returns an owner's session, nil if it has none with this id.
func (a *API) find(id string, of owner) *session {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.sessions[id]; s != nil && s.owner == of {
		return s
	}
	return nil
}

// open returns a new session. If the owner has reached its limit, open ends the owner's session
// that was idle longest, since clients that crash leave some behind. If all tokens together have
// reached the limit, it ends a session of the owner with the most. It returns LIMIT_EXCEEDED if
// none is idle.
func (a *API) open(ctx context.Context, of owner) (*session, error) {
	s := &session{api: a, id: uuid.NewString(), owner: of, released: make(chan struct{}), runners: map[runtime.RunnerID]bool{}, served: map[string]*request{}, used: time.Now()}
	lasting, release := compat.Outlasting(ctx)
	s.ctx, s.end = context.WithCancelCause(lasting)
	s.server = a.newServer(s)
	a.mu.Lock()
	defer a.mu.Unlock()
	// The lock is held until the session is stored, so that concurrent calls can't exceed the
	// limits.
	err := a.makeRoom(of)
	if err == nil {
		s.kept, err = a.services.Memory.Keep(access.FromContext(ctx).Tenant, sessionBytes, "an MCP session")
	}
	if err == nil {
		err = a.services.Engine.Go(s.ctx, func(ctx context.Context) {
			defer release()
			s.run(ctx)
		})
	}
	if err != nil {
		s.kept.Free()
		s.end(err)
		release()
		return nil, err
	}
	a.sessions[s.id] = s
	return s, nil
}

// makeRoom ends a session if one more would exceed a limit.
func (a *API) makeRoom(of owner) error {
	var all []*session
	count := map[owner]int{}
	for _, s := range a.sessions {
		if s.counts() {
			all = append(all, s)
			count[s.owner]++
		}
	}
	if count[of] < a.perToken && len(all) < a.most {
		return nil
	}
	if count[of] >= a.perToken {
		all = slices.DeleteFunc(all, func(s *session) bool { return s.owner != of })
	}
	// The owner with the most sessions comes first, then the session that was idle longest.
	slices.SortFunc(all, func(a, b *session) int {
		return cmp.Or(cmp.Compare(count[b.owner], count[a.owner]), a.lastUse().Compare(b.lastUse()))
	})
	i := slices.IndexFunc(all, (*session).endIdle)
	if i < 0 {
		return runtime.Errorf(runtime.CodeLimitExceeded, "too many MCP sessions are busy: at most %d of one token, %d in all; end some, or try again later", a.perToken, a.most)
	}
	delete(a.sessions, all[i].id)
	return nil
}

// forget removes a session that has ended.
func (a *API) forget(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.sessions, s.id)
	s.kept.Free()
}

// instructions describe the tools to models.
const instructions = `Rockpool runs programs in isolated runners: Linux sandboxes without your user's files, mostly without network.

- To run one program once, use run_program. It returns the output, how the program ended, and the files that it created.
- For several steps that share files (install, edit, build, test), use open_session, then execute, write_files, read_file and list_files. Use close_session at the end.
- Programs run in /workspace, not as root. Relative paths start there. Files there count as memory.
- If a program runs for longer than about 40 s, the result says running: it continues. Call read_output, which waits for its output and its end.
- Long output is cut in the middle, and the result says so. read_output reads the rest.
- An error has a code, the invalid argument and what to do next. A program that fails isn't an error of the tool: see outcome and exitCode.
- list_environments lists the languages and environments.`

// newServer returns the SDK's server of one session.
func (a *API) newServer(s *session) *sdk.Server {
	server := sdk.NewServer(&sdk.Implementation{Name: "rockpool", Title: "Rockpool", Version: a.services.Version}, &sdk.ServerOptions{
		Instructions: instructions,
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}}, // without listChanged: the list is fixed
		GetSessionID: func() string { return s.id },
	})
	for _, t := range a.tools {
		server.AddTool(t.spec, func(ctx context.Context, request *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			of, done, err := s.begins(request.Extra)
			if err != nil {
				return nil, err
			}
			defer done()
			return s.call(ctx, of, t, request), nil
		})
	}
	server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, request sdk.Request) (sdk.Result, error) {
			if connection, ok := request.GetSession().(*sdk.ServerSession); ok {
				s.connected(connection, method)
			}
			return next(ctx, method, request)
		}
	})
	return server
}
