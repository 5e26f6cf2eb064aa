package graph

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/test/clustertest"
	"github.com/rockpool/rockpool/test/wait"
)

// A holder sends a token or a grant to a bed, which counts running operations.
type holder struct {
	*world
	peers     *clients.Limiter
	execution string // it doesn't end
	busy      string // an environment whose runners are all claimed
}

func newHolder(t *testing.T, firstToken string) holder {
	t.Helper()
	return newBoundedHolder(t, firstToken, clients.Bounds{})
}

func newBoundedHolder(t *testing.T, firstToken string, bounds clients.Bounds) holder {
	t.Helper()
	fake := clustertest.NewFake()
	known := clients.New(bounds)
	b := newBedWith(t, lowFake{fake}, fake, bedOptions{Token: firstToken, site: site{Settings: transport.Settings{Peers: known}}})
	h := holder{world: &world{bed: b, t: t, schema: schema()}, peers: known}
	if firstToken == "" {
		_, _, err := h.registry.PutTenant(t.Context(), "physics", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	if _, _, err := h.registry.PutTenant(t.Context(), "physics", nil, nil); err != nil {
		t.Fatal(err)
	}
	o := h.make("physics")
	h.execution, h.busy, h.own = o.execution, o.low, o
	return h
}

// request returns a request for an operation that doesn't end on its own.
func (h holder) request(shown, query string, events bool) *http.Request {
	body, _ := json.Marshal(in{"query": query, "variables": in{"id": h.execution, "env": h.busy}})
	r, _ := http.NewRequestWithContext(h.t.Context(), "POST", h.url+"/graphql", strings.NewReader(string(body)))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+shown)
	if events {
		r.Header.Set("Accept", "text/event-stream")
	}
	return r
}

const (
	longPoll  = `query($id: ID!) { execution(id: $id, waitFor: 86400) { id } }`
	following = `subscription($id: ID!) { executionEvents(executionId: $id) { __typename cursor } }`
	claiming  = `mutation($env: ID!) { claimRunner(input: {environmentId: $env, waitFor: 3600}) { runner { id } } }`
	watching  = `subscription { runnerEvents { runner { id } } }`
)

// checkEnd starts all long operations. When all are running, it calls end, and checks that all end
// with the reason.
func (h holder) checkEnd(shown, says string, queries []string, end func()) {
	t := h.t
	t.Helper()
	var all sync.WaitGroup
	check := func(what string, text string, err error) {
		if err != nil || !strings.Contains(text, `"UNAUTHENTICATED"`) || !strings.Contains(text, says) {
			t.Errorf("%s ended with %s, %v, want UNAUTHENTICATED: %s", what, text, err, says)
		}
	}
	begun := int64(0)
	for _, query := range queries {
		for _, events := range []bool{false, true} {
			if strings.HasPrefix(query, "subscription") && !events {
				continue
			}
			begun++
			all.Go(func() {
				response, err := http.DefaultClient.Do(h.request(shown, query, events))
				if err != nil {
					t.Error(err)
					return
				}
				defer response.Body.Close()
				text, err := io.ReadAll(response.Body)
				check(fmt.Sprintf("%s, events %v", query, events), string(text), err)
				if events && !strings.HasSuffix(strings.TrimSpace(string(text)), "event: complete\ndata:") {
					t.Errorf("%s: the events end with %s", query, text)
				}
			})
		}
	}
	c, err := dial(t, h.url, http.Header{"Authorization": {"Bearer " + shown}})
	if err != nil {
		t.Fatal(err)
	}
	c.send(message{Type: "connection_init"})
	c.receive("connection_ack")
	for i, query := range queries {
		begun++
		payload, _ := json.Marshal(in{"query": query, "variables": in{"id": h.execution, "env": h.busy}})
		c.send(message{ID: fmt.Sprint(i), Type: "subscribe", Payload: payload})
	}
	all.Go(func() {
		answered := map[string]bool{} // with an error, which is all that a query gets
		for {
			_, text, err := c.conn.Read(t.Context())
			var m message
			_ = json.Unmarshal(text, &m)
			switch {
			case err == nil && m.Type == "next" && strings.Contains(string(m.Payload), `"errors"`):
				check("an operation of the WebSocket", string(m.Payload), nil)
				answered[m.ID] = true
			case err == nil && m.Type == "complete" && !answered[m.ID]:
				t.Errorf("%s completed as if all were well", queries[int(m.ID[0]-'0')])
			case err == nil && m.Type == "error":
				check("an operation of the WebSocket", string(m.Payload), nil)
			case err == nil: // an event
			case websocket.CloseStatus(err) != 4403 || !strings.Contains(err.Error(), says):
				t.Errorf("the WebSocket ended with %v, want 4403: %s", err, says)
				return
			default:
				return
			}
		}
	})
	wait.For(t, "all goes on", func() bool { u := h.peers.Usage(); return u.Operations+u.Subscriptions == begun })
	end()
	all.Wait()
	wait.For(t, "nothing goes on", func() bool { u := h.peers.Usage(); return u.Operations+u.Subscriptions == 0 })
}

// Over every transport, a revoked token ends the operations of its holder, with the reason.
func TestRevokedTokenEndsItsOperations(t *testing.T) {
	h := newHolder(t, testToken)
	token, text := h.newToken(identity.NewToken{Role: access.Client, Tenant: "physics"})
	h.checkEnd(text, "revoked", []string{longPoll, following, claiming, watching}, func() {
		if _, err := h.registry.RevokeToken(t.Context(), access.Server(), token.ID, false); err != nil {
			t.Error(err)
		}
	})
}

// When a token ends, its grants end, and the operations of their holders.
func TestGrantEndsWithItsToken(t *testing.T) {
	h := newHolder(t, testToken)
	token, text := h.newToken(identity.NewToken{Role: access.Client, Tenant: "physics"})
	h.checkEnd(h.granted(text, time.Hour), "revoked", []string{longPoll, following}, func() {
		if _, err := h.registry.RevokeToken(t.Context(), access.Server(), token.ID, false); err != nil {
			t.Error(err)
		}
	})
}

// granted returns a grant to watch the holder's execution.
func (h holder) granted(token string, life time.Duration) string {
	h.t.Helper()
	known, err := h.registry.Authenticate(token)
	if err != nil {
		h.t.Fatal(err)
	}
	text, _, err := h.registry.Sign(known.Principal, access.Grant{Execution: runtime.ExecutionID(h.execution), Rights: []access.Right{access.Watch}}, life)
	if err != nil {
		h.t.Fatal(err)
	}
	return text
}

// An expired grant or token ends the operations of its holder.
func TestExpiryEndsOperations(t *testing.T) {
	h := newHolder(t, testToken)
	h.expires(t, "the grant has expired", func(life time.Duration) string { return h.granted(testToken, life) })
	h.expires(t, "the token has expired", func(life time.Duration) string {
		_, text := h.newToken(identity.NewToken{Role: access.Observer, Tenant: "physics", Life: life})
		return text
	})
}

// expires follows the holder's execution with a credential that expires. If the machine is too busy
// to open a WebSocket before, the next one lasts longer.
func (h holder) expires(t *testing.T, says string, lasting func(life time.Duration) string) {
	t.Helper()
	for life := 2 * time.Second; ; life *= 2 {
		c, err := dial(t, h.url, http.Header{"Authorization": {"Bearer " + lasting(life)}})
		if err != nil {
			t.Fatal(err)
		}
		c.send(message{Type: "connection_init"})
		if _, _, err := c.conn.Read(t.Context()); err != nil {
			continue // too late
		}
		payload, _ := json.Marshal(in{"query": following, "variables": in{"id": h.execution}})
		c.send(message{ID: "1", Type: "subscribe", Payload: payload})
		last := ""
		for {
			_, text, err := c.conn.Read(t.Context())
			if err == nil {
				last = string(text)
				continue
			}
			if websocket.CloseStatus(err) != 4403 || !strings.Contains(err.Error(), says) {
				t.Errorf("it ended with %v after %s, want 4403: %s", err, last, says)
			}
			return
		}
	}
}

// When the first token is created, callers without one lose their access.
func TestFirstTokenEndsAnonymousAccess(t *testing.T) {
	h := newHolder(t, "")
	h.checkEnd("", "tokens", []string{watching}, func() {
		_, _, err := h.registry.CreateToken(t.Context(), access.Anonymous(), identity.NewToken{Kind: access.KindToken, Name: "first", Role: access.Admin, AllTenants: true})
		if err != nil {
			t.Error(err)
		}
	})
	if text := h.sendAs("", "{ version }", nil); !strings.Contains(text, `"UNAUTHENTICATED"`) {
		t.Error(text)
	}
}

// The error doesn't say which part of a token is wrong.
func TestWrongTokensGetTheSameError(t *testing.T) {
	h := newHolder(t, testToken)
	_, good := h.newToken(identity.NewToken{Role: access.Client, Tenant: "physics"})
	_, other := h.newToken(identity.NewToken{Role: access.Client, Tenant: "physics"})
	const id = 4 + 21 // of the text: the prefix, and 126 of the 128 bits
	want := h.sendAs("rpt_garbage", "{ version }", nil)
	if !strings.Contains(want, `"UNAUTHENTICATED"`) {
		t.Fatal(want)
	}
	for what, text := range map[string]string{
		"another's secret": good[:id+2] + other[id+2:], "an unknown id": "rpt_" + strings.Repeat("A", len(good)-4), "too short": good[:len(good)-1],
		"another prefix": "rpx_" + good[4:], "the id": good[:id], "one bit": good[:len(good)-1] + string(good[len(good)-1]^1), "text": "password", "a newline": good + "%0A",
	} {
		if got := h.sendAs(text, "{ version }", nil); got != want {
			t.Errorf("%s: %s, not %s", what, got, want)
		}
	}
}

// The address may contain a grant, but no other credential.
func TestAddressesAcceptOnlyGrants(t *testing.T) {
	h := newHolder(t, testToken)
	_, token := h.newToken(identity.NewToken{Role: access.Client, Tenant: "physics"})
	grant := h.granted(token, time.Hour)
	query := url.Values{"query": {`query($id: ID!) { execution(id: $id) { id } }`}, "variables": {`{"id": "` + h.execution + `"}`}}
	events := url.Values{"query": {following}, "variables": query["variables"]}
	for name, path := range map[string]string{"GET": "/graphql?" + query.Encode(), "SSE": "/graphql?" + events.Encode(), "download": "/outputs/" + h.execution + "?"} {
		for shown, status := range map[string]int{grant: 200, token: 401, testToken: 401, "": map[string]int{"download": 403}[name] + 401*min(1, strings.Count(path, "graphql"))} {
			r, _ := http.NewRequestWithContext(t.Context(), "GET", h.url+path+"&grant="+url.QueryEscape(shown), nil)
			if name == "SSE" {
				r.Header.Set("Accept", "text/event-stream")
			}
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != status {
				t.Errorf("%s with %.8q: %s", name, shown, response.Status)
			}
			if name == "SSE" && status == 200 {
				if event := firstEvent(t, response.Body); !strings.Contains(event, "ExecutionStarted") {
					t.Error(event)
				}
			}
			response.Body.Close()
		}
	}
	for shown, admitted := range map[string]bool{grant: true, token: false, testToken: false, "": false} {
		conn, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(h.url, "http")+"/graphql?grant="+url.QueryEscape(shown), &websocket.DialOptions{Subprotocols: []string{transport.Subprotocol}})
		if err != nil {
			t.Fatal(err)
		}
		c := client{t, conn}
		c.send(message{Type: "connection_init"})
		_, text, err := conn.Read(t.Context())
		if got := err == nil && strings.Contains(string(text), "connection_ack"); got != admitted || !admitted && websocket.CloseStatus(err) != 4403 {
			t.Errorf("WebSocket with %.8q: %s %v", shown, text, err)
		}
		_ = conn.CloseNow()
	}
}

// A WebSocket from another site's page is refused, whatever its credential.
func TestWebSocketsOfForeignOriginsAreRefused(t *testing.T) {
	h := newHolder(t, testToken)
	for _, shown := range []string{testToken, h.granted(testToken, time.Hour)} {
		if _, err := dial(t, h.url, http.Header{"Authorization": {"Bearer " + shown}, "Origin": {"https://evil.example.org"}}); err == nil {
			t.Error("it was opened")
		}
	}
}

// A signed address ends with its token, also before its time, and without another credential.
func TestSignedAddressEndsWithItsToken(t *testing.T) {
	h := newHolder(t, testToken)
	_, other := h.newToken(identity.NewToken{Role: access.Client, Tenant: "physics"})
	token, text := h.newToken(identity.NewToken{Role: access.Client, Tenant: "physics"})
	var out struct {
		Execution struct{ OutputURL string }
		Runner    struct{ File struct{ DownloadURL string } }
	}
	h.mustSendAs(text, `query($x: ID!, $r: ID!) { execution(id: $x) { outputUrl } runner(id: $r) { file(path: "a.txt") { downloadUrl } } }`, in{"x": h.execution, "r": h.own.runner}, &out)
	known, _ := h.registry.Authenticate(other)
	addresses := []string{out.Execution.OutputURL, out.Runner.File.DownloadURL}
	status := func(address, shown string) int {
		t.Helper()
		r, _ := http.NewRequestWithContext(t.Context(), "GET", h.url+address, nil)
		if shown != "" {
			r.Header.Set("Authorization", shown)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	for _, address := range addresses {
		for what, test := range map[string]struct {
			address, shown string
			status         int
		}{
			"unchanged: 200":          {address, "", 200},
			"other credentials: 200":  {address, "Basic dTpw", 200}, // from a proxy
			"another token's id: 403": {strings.Replace(address, token.ID, known.ID, 1), "", 403},
			"no token's id: 403":      {strings.Replace(address, "&token="+token.ID, "", 1), "", 403},
			"another object's id":     {strings.Replace(address, h.execution, string(runtime.NewExecutionID()), 1), "", map[bool]int{true: 403, false: 200}[strings.Contains(address, h.execution)]},
			"bad signature: 403":      {address + "x", "Bearer " + text, 200},
		} {
			if what == "bad signature: 403" {
				test.address, test.status = strings.Replace(address, "signature=", "signature=x", 1), 403
			}
			if got := status(test.address, test.shown); got != test.status {
				t.Errorf("%s, %s: %d, want %d", address, what, got, test.status)
			}
		}
	}
	if _, err := h.registry.RevokeToken(t.Context(), access.Server(), token.ID, false); err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		if got := status(address, ""); got != 401 {
			t.Errorf("%s after its token: %d, want 401", address, got)
		}
	}
}

// A feed that another subscriber has opened gives no access to its events.
func TestSharedFeedsCheckAccess(t *testing.T) {
	w := newWorld(t)
	_, theirs := w.newToken(identity.NewToken{Role: access.Observer, Tenant: "chemistry"})
	_, mine := w.newToken(identity.NewToken{Role: access.Observer, Tenant: "physics"})
	query := fmt.Sprintf(`subscription { executionEvents(executionId: %q) { __typename ... on ExecutionOutput { text } } }`, w.foreign.execution)
	until := w.follow(theirs, query)
	until("ExecutionStarted")
	if text := w.sendAs(testToken, fmt.Sprintf(`mutation { writeStdin(input: {executionId: %q, text: "canary"}) { offset } }`, w.foreign.execution), nil); !strings.Contains(text, "offset") {
		t.Fatal(text)
	}
	until("canary") // the feed is open, and has the output
	c, err := dial(t, w.url, http.Header{"Authorization": {"Bearer " + mine}})
	if err != nil {
		t.Fatal(err)
	}
	c.open(query)
	if _, text, err := c.conn.Read(t.Context()); err != nil || !strings.Contains(string(text), "EXECUTION_NOT_FOUND") {
		t.Errorf("got %s, %v", text, err)
	}
}
