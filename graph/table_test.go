package graph

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/files"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/runtime/request"
)

// TestEveryOperationForEveryCaller is the table of access: each caller, operation, object and
// transport. The operations are the schema's: the test fails for one that operations_test.go doesn't
// build. The rules alone give the expected result:
//
//   - A caller without the right to an operation is refused, whatever the object.
//   - The response about another's object equals that about a missing one, except its id.
//   - The response about the caller's own object differs.
func TestEveryOperationForEveryCaller(t *testing.T) {
	w := newWorld(t)
	for _, op := range w.operations() {
		t.Run(op.name, func(t *testing.T) {
			for _, who := range w.callers {
				for _, by := range op.transports() {
					w.check(t, op, who, by)
				}
			}
		})
	}
}

// check calls an operation for each target.
func (w *world) check(t *testing.T, op operation, who caller, by string) {
	t.Helper()
	say := func(target, format string, args ...any) {
		t.Errorf("%s by %s over %s, %s: %s", op.name, who.name, by, target, fmt.Sprintf(format, args...))
	}
	refused, within := who.refusal(op.rules[:1]), who.refusal(op.rules[1:])
	missing := w.ask(t, op, who, by, w.missing())
	if refused != "" && missing.code != refused || refused == "" && missing.refused() && op.about != "" {
		say("missing", "want %q, got %s", refused, missing.text)
	}
	for target, o := range map[string]**things{"own": &w.own, "another": &w.another, "foreign": &w.foreign} {
		got := w.ask(t, op, who, by, *o)
		there := op.about == "" || who.sees(op.about, target)
		switch {
		case refused != "" && got.text != missing.text:
			say(target, "the refusal says whether it is there: %s and %s", got.text, missing.text)
		case refused != "":
		case there && within != "" && got.code != within:
			say(target, "want %s, got %s", within, got.text)
		case there && within == "" && got.refused():
			say(target, "refused: %s", got.text)
		case there && op.about != "" && !op.wrong && got.text == missing.text:
			say(target, "it answers as one that isn't there: %s", got.text)
		case !there && op.taken && target == "foreign":
			if got.code != "CONFLICT" {
				say(target, "ids are the server's, so it is taken: %s", got.text)
			}
		case !there && got.text != missing.text:
			say(target, "it answers otherwise than one that never was: %s and %s", got.text, missing.text)
		}
		if refused == "" && there && op.spends {
			*o = w.make((*o).tenant)
		}
	}
}

// Files and outputs have the same access rules as their fields.
func TestDownloadsForEveryCaller(t *testing.T) {
	w := newWorld(t)
	for _, op := range []operation{
		{name: "/files/", rules: ops("file"), about: "runner"},
		{name: "/outputs/", rules: ops("output"), about: "execution"},
	} {
		path := func(o *things) string {
			if op.about == "runner" {
				return "/files/" + o.runner + "?path=a.txt"
			}
			return "/outputs/" + o.execution + "?"
		}
		for _, who := range w.callers {
			for _, inAddress := range []bool{false, true} {
				if inAddress && who.object == "" {
					continue // the parameter accepts only a grant
				}
				ask := func(o *things) (int, string) {
					request, _ := http.NewRequestWithContext(t.Context(), "GET", w.url+path(o), nil)
					switch {
					case who.show == nil:
					case inAddress:
						request.URL.RawQuery += "&grant=" + url.QueryEscape(who.show(w))
					default:
						request.Header.Set("Authorization", "Bearer "+who.show(w))
					}
					response, err := http.DefaultClient.Do(request)
					if err != nil {
						t.Fatal(err)
					}
					defer response.Body.Close()
					text, _ := io.ReadAll(response.Body)
					return response.StatusCode, o.reply(op.about, string(text)).text
				}
				_, never := ask(w.missing())
				for target, o := range map[string]*things{"own": w.own, "another": w.another, "foreign": w.foreign} {
					status, text := ask(o)
					there := who.refusal(op.rules) == "" && who.sees(op.about, target)
					if there != (status == http.StatusOK) || !there && text != never {
						t.Errorf("%s by %s, %s: %d %s", op.name, who.name, target, status, text)
					}
					if who.show == nil && status != http.StatusForbidden { // without a signature
						t.Errorf("%s by nobody, %s: %d %s", op.name, target, status, text)
					}
				}
			}
		}
	}
}

// things are one of each kind, of one tenant.
type things struct {
	tenant      runtime.TenantID
	environment string
	low         string // an environment whose runners don't start, so it has an alert
	runner      string
	execution   string
	batch       string
	ticket      string
	token       string
	tenantName  string
}

// A caller has a credential; nobody has none.
type caller struct {
	name   string
	show   func(w *world) string
	role   access.Role
	all    bool
	rights []access.Right // of a grant
	object string         // of a grant: its kind
}

// refusal returns the code by the rules; "" means the caller may.
func (c caller) refusal(ops []access.Operation) string {
	order := []access.Role{access.Observer, access.Client, access.Operator, access.Admin}
	for _, op := range ops {
		rule, _ := access.RuleOf(op)
		ok := slices.Index(order, c.role) >= slices.Index(order, rule.Role) && (c.all || !rule.AllTenants)
		if c.object != "" {
			ok = slices.ContainsFunc(rule.Rights, func(r access.Right) bool { return slices.Contains(c.rights, r) })
		}
		switch {
		case c.show == nil:
			return "UNAUTHENTICATED"
		case !ok:
			return "FORBIDDEN"
		}
	}
	return ""
}

// sees reports whether an object of a kind exists for the caller.
func (c caller) sees(kind, target string) bool {
	switch c.object {
	case "execution":
		return target == "own" && kind == "execution"
	case "runner":
		return target == "own" && (kind == "runner" || kind == "execution" || kind == "batch")
	}
	return c.all || target != "foreign"
}

// A world has two tenants with one of everything each, and all kinds of callers of the first.
type world struct {
	bed
	t       *testing.T
	schema  *ast.Schema
	callers []caller
	own     *things
	another *things // of the same tenant, but not the grants' objects
	foreign *things
	made    int
	maker   access.Principal // of grants
	sockets map[string]*socketCaller
	grants  map[string]string
}

func newWorld(t *testing.T) *world {
	w := &world{bed: newBedOfTenants(t), t: t, schema: schema(), sockets: map[string]*socketCaller{}, grants: map[string]string{}}
	for _, tenant := range []runtime.TenantID{"physics", "chemistry"} {
		if _, _, err := w.registry.PutTenant(t.Context(), tenant, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, role := range access.Roles() {
		w.token("a "+string(role), identity.NewToken{Role: role, Tenant: "physics"})
	}
	for _, role := range []access.Role{access.Admin, access.Operator, access.Observer} {
		w.token("an "+string(role)+" for all", identity.NewToken{Role: role, AllTenants: true})
	}
	_, text := w.newToken(identity.NewToken{Role: access.Client, Tenant: "physics"})
	known, err := w.registry.Authenticate(text)
	if err != nil {
		t.Fatal(err)
	}
	w.maker = known.Principal
	w.grant("a grant to watch", "execution", access.Watch)
	w.grant("a grant for a runner", "runner", access.Watch, access.Stdin, access.Cancel, access.FilesRead, access.FilesWrite, access.Execute)
	w.grant("a grant to watch a runner", "runner", access.Watch)
	w.grant("a grant to feed", "execution", access.Stdin)
	w.callers = append(w.callers, caller{name: "nobody"})
	w.used("physics")
	w.own, w.another, w.foreign = w.make("physics"), w.make("physics"), w.make("chemistry")
	return w
}

func (w *world) newToken(in identity.NewToken) (access.Token, string) {
	w.t.Helper()
	in.Kind, in.Name = access.KindToken, "test"
	token, text, err := w.registry.CreateToken(w.t.Context(), access.Server(), in)
	if err != nil {
		w.t.Fatal(err)
	}
	return token, text
}

func (w *world) token(name string, in identity.NewToken) {
	_, text := w.newToken(in)
	w.callers = append(w.callers, caller{name: name, role: in.Role, all: in.AllTenants, show: func(*world) string { return text }})
}

// grant adds a caller with a grant for the world's own thing. When that is replaced, a new grant is
// made.
func (w *world) grant(name, object string, rights ...access.Right) {
	show := func(w *world) string {
		g := access.Grant{Rights: rights, Execution: runtime.ExecutionID(w.own.execution)}
		if object == "runner" {
			g.Execution, g.Runner = "", runtime.RunnerID(w.own.runner)
		}
		of := name + w.own.runner
		if w.grants[of] == "" {
			text, _, err := w.registry.Sign(w.maker, g, time.Hour)
			if err != nil {
				w.t.Fatal(err)
			}
			w.grants[of] = text
		}
		return w.grants[of]
	}
	w.callers = append(w.callers, caller{name: name, show: show, rights: rights, object: object})
}

// used makes a tenant, and a caller for all tenants, use usedKey for another environment.
func (w *world) used(tenant runtime.TenantID) {
	w.t.Helper()
	if _, _, err := w.engine.Environments.Put(access.With(w.t.Context(), access.Server()), request.Environment{ID: "used", Tenant: &tenant, PoolSize: ptr(1)}); err != nil {
		w.t.Fatal(err)
	}
	for _, p := range []access.Principal{{Kind: access.KindToken, Tenant: tenant, Role: access.Client}, access.Server()} {
		if _, err := w.engine.Runners.Claim(access.With(w.t.Context(), p), request.Claim{EnvironmentID: "used", Key: usedKey, WaitFor: ptr(60)}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// make makes one of everything for a tenant, without the API.
func (w *world) make(tenant runtime.TenantID) *things {
	w.t.Helper()
	w.made++
	ctx := access.With(w.t.Context(), access.Server())
	must := func(err error) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	o := &things{tenant: tenant, tenantName: string(tenant), environment: fmt.Sprintf("env-%03d", w.made), low: fmt.Sprintf("low-%03d", w.made)}
	for _, id := range []string{o.environment, o.low} {
		_, _, err := w.engine.Environments.Put(ctx, request.Environment{ID: runtime.EnvironmentID(id), Tenant: &tenant, PoolSize: ptr(1)})
		must(err)
	}
	r, err := w.engine.Runners.Claim(ctx, request.Claim{EnvironmentID: runtime.EnvironmentID(o.environment), WaitFor: ptr(60)})
	must(err)
	o.runner = string(r.ID)
	_, err = w.engine.Files.Update(ctx, r.ID, "write", files.Update{Write: []runtime.FileWrite{{Path: "a.txt", Data: []byte("a")}}})
	must(err)
	cat := []string{"cat"}
	x, err := w.engine.Executions.Start(ctx, request.Start{RunnerID: r.ID, Command: cat, Terminal: &runtime.TerminalSize{Columns: 80, Rows: 24}})
	must(err)
	o.execution = string(x.ID)
	b, _, err := w.engine.Batches.Start(ctx, request.Start{RunnerID: r.ID, Command: cat}, request.Batch{Cases: []request.Case{{Stdin: []byte("1")}}})
	must(err)
	o.batch = string(b.ID)
	waits, err := w.engine.Tickets.Open(ctx, request.Claim{EnvironmentID: runtime.EnvironmentID(o.low)})
	must(err)
	o.ticket = string(waits.ID)
	token, _ := w.newToken(identity.NewToken{Role: access.Observer, Tenant: tenant})
	o.token = token.ID
	return o
}

// missing returns things that never existed.
func (w *world) missing() *things {
	w.made++
	return &things{
		environment: fmt.Sprintf("env-%03d", w.made), low: fmt.Sprintf("low-%03d", w.made), runner: string(runtime.NewRunnerID()),
		execution: string(runtime.NewExecutionID()), batch: string(runtime.NewBatchID()), ticket: string(runtime.NewTicketID()), token: string(runtime.NewRunnerID()), tenantName: fmt.Sprintf("nobodys-%d", w.made),
	}
}

// A reply is the first response: its code, and its text without ids.
type reply struct{ code, text string }

func (r reply) refused() bool { return r.code == "FORBIDDEN" || r.code == "UNAUTHENTICATED" }

// reply returns a response to an operation about an object of a kind.
func (o *things) reply(about, text string) reply {
	var whole struct {
		Errors []struct{ Extensions struct{ Code string } }
	}
	_ = json.Unmarshal([]byte(text), &whole)
	out := reply{text: strings.ReplaceAll(text, "this one is for tenant physics", "this one isn't")} // of the caller's own
	if len(whole.Errors) > 0 {
		out.code = whole.Errors[0].Extensions.Code
	}
	ids := map[string][]string{
		"environment": {o.environment, o.low}, "runner": {o.runner}, "execution": {o.execution}, "batch": {o.batch}, "ticket": {o.ticket}, "token": {o.token}, "tenant": {o.tenantName},
	}
	for _, id := range ids[about] {
		out.text = strings.ReplaceAll(out.text, id, "ID")
	}
	return out
}

func (w *world) ask(t *testing.T, op operation, who caller, by string, o *things) reply {
	t.Helper()
	query, variables := op.build(w.schema, o)
	body, _ := json.Marshal(in{"query": query, "variables": variables})
	shown := ""
	if who.show != nil {
		shown = who.show(w)
	}
	if by == "WebSocket" {
		return o.reply(op.about, w.socket(t, who, shown).ask(t, body))
	}
	request, _ := http.NewRequestWithContext(t.Context(), "POST", w.url+"/graphql", strings.NewReader(string(body)))
	request.Header.Set("Content-Type", "application/json")
	switch by {
	case "GET":
		text, _ := json.Marshal(variables)
		at := w.url + "/graphql?" + url.Values{"query": {query}, "variables": {string(text)}}.Encode()
		request, _ = http.NewRequestWithContext(t.Context(), "GET", at, nil)
	case "SSE":
		request.Header.Set("Accept", "text/event-stream")
	case "multipart":
		text, kind := form{{"operations", string(body)}, {"map", `{"0": ["variables.file"]}`}, {"0", "content"}}.body(t)
		request, _ = http.NewRequestWithContext(t.Context(), "POST", w.url+"/graphql", strings.NewReader(text))
		request.Header.Set("Content-Type", kind)
		request.Header.Set("GraphQL-Require-Preflight", "1")
	}
	if shown != "" {
		request.Header.Set("Authorization", "Bearer "+shown)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		return o.reply(op.about, firstEvent(t, response.Body))
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return o.reply(op.about, string(text))
}

// firstEvent returns the data of the first event that has some.
func firstEvent(t *testing.T, from io.Reader) string {
	t.Helper()
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			return data
		}
	}
	t.Fatalf("no event: %v", lines.Err())
	return ""
}

// A socketCaller is the WebSocket of a caller.
type socketCaller struct {
	client
	asked int
}

func (w *world) socket(t *testing.T, who caller, shown string) *socketCaller {
	t.Helper()
	if s := w.sockets[shown]; s != nil {
		return s
	}
	c, err := dial(w.t, w.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	payload := in{}
	if shown != "" {
		payload["Authorization"] = "Bearer " + shown
	}
	text, _ := json.Marshal(payload)
	c.send(message{Type: "connection_init", Payload: text})
	s := &socketCaller{client: c}
	if shown != "" {
		c.receive("connection_ack")
		w.sockets[shown] = s
	}
	return s
}

// ask returns the first response. The refusal of a WebSocket is one, too.
func (s *socketCaller) ask(t *testing.T, body []byte) string {
	t.Helper()
	s.asked++
	id := fmt.Sprint(s.asked)
	s.send(message{ID: id, Type: "subscribe", Payload: body})
	for {
		_, text, err := s.conn.Read(t.Context())
		if websocket.CloseStatus(err) == 4403 {
			return `{"errors":[{"extensions":{"code":"UNAUTHENTICATED"}}]}`
		}
		var m message
		if err == nil {
			err = json.Unmarshal(text, &m)
		}
		switch {
		case err != nil:
			t.Fatal(err)
		case m.ID != id: // of an earlier one
		case m.Type == "error":
			return `{"errors":` + string(m.Payload) + `}`
		case m.Type == "next":
			s.send(message{ID: id, Type: "complete"})
			return string(m.Payload)
		default:
			t.Fatalf("got %s %s", m.Type, m.Payload)
		}
	}
}

func ptr[T any](v T) *T { return &v }
