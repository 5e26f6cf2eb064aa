package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/wait"
)

// entries returns the actions that a command printed with --json.
func entries(t *testing.T, text string) (actions []string) {
	t.Helper()
	for line := range strings.Lines(text) {
		var e client.AuditEntry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		actions = append(actions, e.Action)
	}
	return actions
}

func TestAuditCommand(t *testing.T) {
	s := newServer(t)
	admin := s.works("token", "create", "admin", "--role", "ADMIN")
	s.as(admin)
	s.works("tenant", "put", "physics")
	s.works("env", "put", "a", "--tenant", "physics", "--pool-size", "0")
	physics := s.works("token", "create", "teacher", "--role", "ADMIN", "--tenant", "physics")

	audit := func(arguments ...string) []string {
		t.Helper()
		return entries(t, s.works(append([]string{"audit", "--json"}, arguments...)...))
	}
	all := []string{"createToken", "putTenant", "putEnvironment", "createToken"}
	for _, test := range []struct {
		arguments string
		want      []string
	}{
		{"", all},
		{"--lines 0", all},
		{"-n 2", all[2:]},
		{"--action putTenant", all[1:2]},
		{"--object a", all[2:3]},
		{"--from 1h --to 0s", all},
	} {
		if got := audit(strings.Fields(test.arguments)...); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, not %q", test.arguments, got, test.want)
		}
	}
	for _, want := range []string{"Z  OK ", "  by anonymous (ANONYMOUS)", "  putEnvironment ", "  environment a  by admin (TOKEN ", "  role ADMIN  tenant physics\n"} {
		if text := s.works("audit"); !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	s.fails("24h", "audit", "--from", "yesterday")
	s.fails("24h", "audit", "--to=-1h")
	s.fails("0 or more", "audit", "--lines=-1")
	s.fails("--to has no meaning", "audit", "--follow", "--to", "1h")

	followed := s.start("audit", "--follow", "--lines", "1", "--json")
	followed.out.has(t, "createToken")
	s.works("tenant", "put", "chemistry")
	s.works("tenant", "put", "biology")
	followed.out.has(t, "biology")
	if code := followed.interrupts(t); code != command.CodeInterrupted {
		t.Error(code, followed.errs.String())
	}
	if got := entries(t, followed.out.String()); !slices.Equal(got, []string{"createToken", "putTenant", "putTenant"}) {
		t.Errorf("followed: %q", got)
	}
	s.fails("tenant nobody doesn't exist", "token", "create", "x", "--role", "CLIENT", "--tenant", "nobody")
	if got := audit("--failed"); !slices.Equal(got, []string{"createToken"}) {
		t.Errorf("failed: %q", got)
	}

	s.as(physics)
	if got := audit(); !slices.Equal(got, []string{"putEnvironment", "createToken"}) {
		t.Errorf("the tenant's: %q", got)
	}
	s.as(admin)
	s.as(s.works("token", "create", "reader", "--role", "OBSERVER"))
	s.fails("needs the role ADMIN", "audit")
}

// TestAuditLogsOfManyPages checks that pages are joined.
func TestAuditLogsOfManyPages(t *testing.T) {
	const page, total = 1000, 2500
	var asked int
	at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		var in struct {
			Variables struct {
				First       int
				After       *int `json:",string"`
				NewestFirst bool
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		v := in.Variables
		next, step := 1, 1
		if v.NewestFirst {
			next, step = total, -1
		}
		if v.After != nil {
			next = *v.After + step
		}
		edges := []map[string]any{}
		for ; len(edges) < min(v.First, page) && next >= 1 && next <= total; next += step {
			edges = append(edges, map[string]any{"cursor": json.Number(jsonText(next)).String(), "node": map[string]any{"id": jsonText(next)}})
		}
		more := next >= 1 && next <= total
		_, _ = io.WriteString(w, jsonText(map[string]any{"data": map[string]any{"auditLog": map[string]any{"edges": edges, "pageInfo": map[string]any{"hasNextPage": more}}}}))
	}))
	defer at.Close()
	s := &server{t: t, url: at.URL}
	for lines, want := range map[string][3]int{"0": {1, total, 3}, "1500": {1001, total, 2}, "5000": {1, total, 3}} {
		asked = 0
		all := slices.Collect(strings.Lines(s.works("audit", "--json", "--lines", lines)))
		first, last := all[0], all[len(all)-1]
		if !strings.Contains(first, `"id":"`+jsonText(want[0])+`"`) || !strings.Contains(last, `"id":"`+jsonText(want[1])+`"`) || len(all) != want[1]-want[0]+1 || asked != want[2] {
			t.Errorf("--lines %s: %d entries from %s to %s, by %d requests", lines, len(all), first, last, asked)
		}
	}
}

func jsonText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// TestAuditEntriesDontControlTheTerminal also checks that an error in addition to a page doesn't
// hide the page.
func TestAuditEntriesDontControlTheTerminal(t *testing.T) {
	var asked atomic.Int32
	at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = io.WriteString(w, `{
			"errors": [{"message": "3 entries are missing here", "extensions": {"code": "CLUSTER_UNAVAILABLE"}}],
			"data": {"auditLog": {"pageInfo": {"hasNextPage": false}, "edges": [{"cursor": "a", "node": {
				"id": "1", "at": "2026-11-20T21:27:00Z", "actorName": "a\u001b[2Jb\u202e\u009bc\nd", "action": "x", "address": "192.0.2.1"}}]}}}`)
	}))
	defer at.Close()
	s := &server{t: t, url: at.URL}
	for _, arguments := range [][]string{{"audit"}, {"audit", "--json"}, {"audit", "--lines", "0"}} {
		out, errs, code := s.command(arguments...)
		if code != command.CodeOurs || !strings.Contains(errs, "3 entries are missing here") {
			t.Errorf("%q: %d %s", arguments, code, errs)
		}
		if strings.Count(out, "\n") != 1 || strings.ContainsAny(out, "\x1b\u202e\u009b") || !strings.Contains(out, "[2Jb") || !strings.Contains(out, "192.0.2.1") {
			t.Errorf("%q: %q", arguments, out)
		}
	}
	asked.Store(0)
	followed := s.start("audit", "--follow")
	wait.For(t, "it asks for new entries", func() bool { return asked.Load() == 3 })
	if code := followed.interrupts(t); code != command.CodeInterrupted || strings.Count(followed.errs.String(), "missing") != 1 {
		t.Error(code, followed.errs.String())
	}
}
