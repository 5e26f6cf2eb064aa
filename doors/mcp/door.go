// Package mcp is the door for AI agents. It speaks the Model Context Protocol over streamable HTTP, with the official SDK.
//
// An MCP session belongs to the token that opened it. What an agent claims in it ends with it: when the client deletes it,
// when it is idle for an hour, when its token ends, or when the server stops.
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

	"github.com/rockpool/rockpool/doors"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

// Bounds of MCP sessions.
const (
	maxSessions    = 1024 // of all tokens
	maxPerToken    = 32
	idleTimeout    = time.Hour // without a request; it outlasts the pauses of a person who talks with an agent
	sessionHeader  = "Mcp-Session-Id"
	unknownSession = "there is no such MCP session (any more): initialize a new one"
)

// A Door serves the Model Context Protocol at /mcp.
type Door struct {
	idle     time.Duration
	most     int // sessions of all tokens
	perToken int

	host   doors.Host
	tools  []tool
	counts map[string]func(failed bool, took time.Duration) // by tool

	mu       sync.Mutex // guards sessions
	sessions map[string]*session
}

// New returns a door.
func New() *Door {
	return &Door{idle: idleTimeout, most: maxSessions, perToken: maxPerToken, sessions: map[string]*session{}}
}

// Name implements doors.Door.
func (*Door) Name() string { return "mcp" }

// Path implements doors.Door.
func (*Door) Path() string { return "/mcp" }

// Register implements doors.Door.
func (d *Door) Register(host doors.Host, routes *doors.Routes) {
	d.host, d.tools, d.counts = host, tools(), map[string]func(bool, time.Duration){}
	for _, t := range d.tools {
		d.counts[t.spec.Name] = routes.Counting("tools/call " + t.spec.Name)
	}
	protocol := sdk.NewStreamableHTTPHandler(serverOf, &sdk.StreamableHTTPOptions{
		MaxRequestBodyBytes:        -1,   // post has read the body
		DisableLocalhostProtection: true, // the API's own check of the header Host has passed it
	})
	by := doors.Authentication{Shown: shown, Refuse: refuse}
	routes.Handle("POST /mcp", host.Authenticated(by, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.post(w, r, protocol) })))
	routes.Handle("DELETE /mcp", host.Authenticated(by, http.HandlerFunc(d.delete)))
	routes.Handle("/mcp", host.Authenticated(by, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Allow", "POST, DELETE") // this server begins no requests of its own, so a stream by GET has nothing to carry
		http.Error(w, "send messages by POST", http.StatusMethodNotAllowed)
	})))
}

// shown returns what a request shows in the header Authorization. A session's cookie doesn't count: agents have tokens.
func shown(r *http.Request) string {
	header := r.Header.Get("Authorization")
	if scheme, token, _ := strings.Cut(header, " "); strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	return header
}

func refuse(w http.ResponseWriter, _ *http.Request, err error) {
	if runtime.CodeOf(err) == runtime.CodeQuotaExceeded {
		tooMuch(w, err)
		return
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="rockpool"`)
	http.Error(w, runtime.MessageOf(err), http.StatusUnauthorized)
}

type sessionKey struct{}

// serverOf returns the SDK's server of a request's session.
func serverOf(r *http.Request) *sdk.Server {
	return r.Context().Value(sessionKey{}).(*session).server
}

// post serves messages: those of a session, or the first one of a new session. The body of each takes memory until it is
// answered, as the API's.
func (d *Door) post(w http.ResponseWriter, r *http.Request, protocol http.Handler) {
	body, err := d.host.ReadBody(w, r)
	if refused, ok := errors.AsType[*doors.BodyError](err); ok {
		http.Error(w, refused.Message, refused.Status)
		return
	}
	if err != nil {
		tooMuch(w, err)
		return
	}
	needed, err := decoded(body)
	hold := doors.HoldOf(r)
	switch room := hold.Room(); {
	case err != nil:
		http.Error(w, runtime.MessageOf(err), http.StatusBadRequest)
		return
	case needed > room: // it would be refused for ever
		http.Error(w, fmt.Sprintf("the message is too large: beside its body, it needs %d bytes of memory, and at most %d are left (--body-memory)", needed, room), http.StatusRequestEntityTooLarge)
		return
	}
	if err := hold.Grow(needed); err != nil {
		tooMuch(w, err)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	id, owner := r.Header.Get(sessionHeader), ownerOf(r.Context())
	s := d.find(id, owner)
	switch {
	case access.FromContext(r.Context()).Grant != nil:
		http.Error(w, "a grant can't claim runners: show a token", http.StatusForbidden)
		return
	case bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")): // a batch would count as one operation
		http.Error(w, "send each message in a request of its own", http.StatusBadRequest)
		return
	case s == nil && id != "":
		http.Error(w, unknownSession, http.StatusNotFound)
		return
	case s == nil:
		if s, err = d.open(r.Context(), owner); err != nil {
			tooMuch(w, err)
			return
		}
	}
	if !s.begin() {
		http.Error(w, unknownSession, http.StatusNotFound)
		return
	}
	defer s.done()
	s.serve(w, r.WithContext(context.WithValue(r.Context(), sessionKey{}, s)), protocol)
	if id == "" && !s.initialized() {
		s.end(errNotOpened)
	}
}

// tooMuch answers a caller that takes as much as it may already.
func tooMuch(w http.ResponseWriter, err error) {
	w.Header().Set("Retry-After", "10")
	http.Error(w, runtime.MessageOf(err), http.StatusTooManyRequests)
}

// delete ends a session.
func (d *Door) delete(w http.ResponseWriter, r *http.Request) {
	s := d.find(r.Header.Get(sessionHeader), ownerOf(r.Context()))
	if s == nil {
		http.Error(w, unknownSession, http.StatusNotFound)
		return
	}
	s.end(errDeleted)
	select { // then what it held is free again
	case <-s.released:
	case <-r.Context().Done():
	}
	w.WriteHeader(http.StatusNoContent)
}

// An owner is a token.
type owner struct {
	kind access.Kind
	id   string
}

func ownerOf(ctx context.Context) owner {
	p := access.FromContext(ctx)
	return owner{p.Kind, p.ID}
}

// find returns an owner's session; nil: it has none with this id.
func (d *Door) find(id string, of owner) *session {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.sessions[id]; s != nil && s.owner == of {
		return s
	}
	return nil
}

// open returns a new session. Where its owner has as many as it may, it ends the owner's that was idle longest: clients that
// crash leave some behind. Where all have as many as there may be, it ends one of the owner that has the most. LIMIT_EXCEEDED
// where none is idle.
func (d *Door) open(ctx context.Context, of owner) (*session, error) {
	s := &session{door: d, id: uuid.NewString(), owner: of, released: make(chan struct{}), runners: map[runtime.RunnerID]bool{}, served: map[string]*request{}, used: time.Now()}
	lasting, release := doors.Outlasting(ctx)
	s.ctx, s.end = context.WithCancelCause(lasting)
	s.server = d.newServer(s)
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.makeRoom(of)
	if err == nil {
		err = d.host.Guard.Go(s.ctx, func(ctx context.Context) {
			defer release()
			s.run(ctx)
		})
	}
	if err != nil {
		s.end(err)
		release()
		return nil, err
	}
	d.sessions[s.id] = s
	return s, nil
}

// makeRoom ends a session where one more would be too many.
func (d *Door) makeRoom(of owner) error {
	var all []*session
	count := map[owner]int{}
	for _, s := range d.sessions {
		if s.counts() {
			all = append(all, s)
			count[s.owner]++
		}
	}
	if count[of] < d.perToken && len(all) < d.most {
		return nil
	}
	if count[of] >= d.perToken {
		all = slices.DeleteFunc(all, func(s *session) bool { return s.owner != of })
	}
	slices.SortFunc(all, func(a, b *session) int {
		return cmp.Or(cmp.Compare(count[b.owner], count[a.owner]), a.lastUse().Compare(b.lastUse()))
	})
	i := slices.IndexFunc(all, (*session).endIdle)
	if i < 0 {
		return runtime.Errorf(runtime.CodeLimitExceeded, "too many MCP sessions are busy: at most %d of one token, %d in all; end some, or try again later", d.perToken, d.most)
	}
	delete(d.sessions, all[i].id)
	return nil
}

// forget removes a session that has ended.
func (d *Door) forget(s *session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.sessions, s.id)
}

const instructions = `Rockpool runs programs in isolated runners: Linux sandboxes without your user's files, mostly without network.

- One program, once: run_program. It answers with the output, how the program ended, and the files that it made.
- Several steps that share files (install, edit, build, test): open_session, then execute, write_files, read_file and list_files, and close_session at the end.
- Programs run in /workspace, as a user that isn't root. Relative paths start there. Files there count as memory.
- Long output is cut in the middle, and the answer says so: read_output reads the rest.
- An error has a code, the wrong argument and what to do next. A program that fails isn't an error of the tool: see outcome and exitCode.
- list_environments says which languages and environments there are.`

// newServer returns the SDK's server of one session.
func (d *Door) newServer(s *session) *sdk.Server {
	server := sdk.NewServer(&sdk.Implementation{Name: "rockpool", Title: "Rockpool", Version: d.host.Version}, &sdk.ServerOptions{
		Instructions: instructions,
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}}, // the list never changes
		GetSessionID: func() string { return s.id },
	})
	for _, t := range d.tools {
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
