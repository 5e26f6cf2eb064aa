package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/files"
	"github.com/rockpool/rockpool/runtime/request"
)

func TestTokenAndTenantCommands(t *testing.T) {
	s := newServer(t)
	s.fails("for all tenants", "token", "create", "c", "--role", "CLIENT", "--tenant", "default")
	admin := s.works("token", "create", "admin", "--role", "ADMIN")
	if !strings.HasPrefix(admin, "rpt_") || strings.Count(admin, "\n") != 1 {
		t.Fatalf("it prints more than the token: %q", admin)
	}
	s.fails("UNAUTHENTICATED", "token", "list")
	s.as(admin)

	if text := s.works("tenant", "put", "physics", "--runners", "20", "--weight", "2"); !strings.Contains(text, "created") {
		t.Error(text)
	}
	if text := s.works("tenant", "put", "physics", "--claims-per-minute", "300"); !strings.Contains(text, "changed") {
		t.Error(text)
	}
	quotas := func() string {
		t.Helper()
		for line := range strings.Lines(s.works("tenant", "list")) {
			if strings.HasPrefix(line, "physics") {
				return strings.Join(strings.Fields(line), " ")
			}
		}
		return ""
	}
	if got := quotas(); got != "physics 2 0/20 0 0 0/300 0 0 0 0 0 0" {
		t.Errorf("what isn't given doesn't stay: got %q, want \"physics 2 0/20 0 0 0/300 0 0 0 0 0 0\"", got)
	}
	s.works("tenant", "put", "physics", "--no-quotas", "--waiting", "0")
	if got := quotas(); got != "physics 2 0 0/0 0 0 0 0 0 0 0 0" {
		t.Errorf("quotas are left: got %q, want \"physics 2 0 0/0 0 0 0 0 0 0 0 0\"", got)
	}
	s.fails("0 to 1000000", "tenant", "put", "physics", "--runners=-1")
	s.fails("lower-case letters", "tenant", "put", "Physics")

	var made struct {
		Secret string
		Token  struct{ ID, Tenant, Role, ExpiresAt string }
	}
	text := s.works("token", "create", "codeocean", "--role", "CLIENT", "--tenant", "physics", "--expires", "2160h", "--json")
	if err := json.Unmarshal([]byte(text), &made); err != nil || made.Token.Tenant != "physics" || made.Token.Role != "CLIENT" || made.Token.ExpiresAt == "" || made.Secret == "" {
		t.Fatalf("%v: %s", err, text)
	}
	for says, arguments := range map[string][]string{
		"tenant chemistry doesn't exist": {"--role", "CLIENT", "--tenant", "chemistry"}, "belong to one tenant": {"--role", "CLIENT"}, "whole seconds": {"--role", "ADMIN", "--expires", "1500ms"},
		"0 to 87600h": {"--role", "ADMIN", "--expires", "999999h"}, "--role": {"--role", "ROOT"},
	} {
		s.fails(says, append([]string{"token", "create", "t"}, arguments...)...)
	}
	list := s.works("token", "list")
	for _, shown := range []string{"TOKEN", "codeocean", "physics", "89 days from now", made.Token.ID, "all"} {
		if !strings.Contains(list, shown) {
			t.Errorf("no %q in %s", shown, list)
		}
	}
	if strings.Contains(list, strings.TrimSpace(admin)) || strings.Contains(s.works("token", "list", "--json"), made.Secret) {
		t.Error("the list has secrets")
	}

	s.as(made.Secret)
	s.fails("FORBIDDEN", "token", "list")
	s.fails("FORBIDDEN", "tenant", "delete", "physics")
	if text := s.works("tenant", "list"); strings.Contains(text, "default") || !strings.Contains(text, "physics") {
		t.Error(text)
	}

	s.as(admin)
	if text := s.works("token", "revoke", made.Token.ID); !strings.Contains(text, "REVOKED") || !strings.Contains(text, "yes") {
		t.Error(text)
	}
	s.fails("already ended", "token", "revoke", made.Token.ID)
	s.fails("nobody's: no token has this id; `rockpool token list` lists the ids", "token", "revoke", "nobody's")
	var named struct{ Token struct{ ID string } }
	if err := json.Unmarshal([]byte(s.works("token", "create", "moodle", "--role", "ADMIN", "--json")), &named); err != nil {
		t.Fatal(err)
	}
	s.fails("moodle: this is a token's name; give its id instead: "+named.Token.ID, "token", "revoke", "moodle")
	var leaked, child struct {
		Secret string
		Token  struct{ ID, CreatedBy string }
	}
	for _, into := range []any{&leaked, &child} {
		if err := json.Unmarshal([]byte(s.works("token", "create", "leaked", "--role", "ADMIN", "--json")), into); err != nil {
			t.Fatal(err)
		}
		s.as(leaked.Secret)
	}
	s.as(admin)
	if list := s.works("token", "list"); !strings.Contains(list, "MADE BY") || strings.Count(list, leaked.Token.ID) != 2 {
		t.Error(list)
	}
	if text := s.works("token", "revoke", leaked.Token.ID); !strings.Contains(text, "yes") {
		t.Error(text)
	}
	if text := s.works("token", "revoke", leaked.Token.ID, "--also-made"); !strings.Contains(text, "yes") {
		t.Error(text)
	}
	s.as(child.Secret)
	s.fails("UNAUTHENTICATED", "token", "list")
	s.as(admin)
	if text := s.works("token", "list"); !strings.Contains(text, "revoked 0 s ago") {
		t.Error(text)
	}
	s.as(made.Secret)
	s.fails("UNAUTHENTICATED", "tenant", "list")
	s.as(admin)
	s.works("tenant", "delete", "physics")
	s.fails("doesn't exist", "tenant", "delete", "physics")
	s.fails("default", "tenant", "delete", "default")
}

func TestGrantCommand(t *testing.T) {
	s := newServer(t)
	s.as(s.works("token", "create", "admin", "--role", "ADMIN"))
	size, wait := 1, 60
	if _, _, err := s.engine.Environments.Put(access.With(t.Context(), access.Server()), request.Environment{ID: "a", PoolSize: &size}); err != nil {
		t.Fatal(err)
	}
	runner, err := s.engine.Runners.Claim(access.With(t.Context(), access.Server()), request.Claim{EnvironmentID: "a", WaitFor: &wait})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.engine.Files.Update(access.With(t.Context(), access.Server()), runner.ID, "write", files.Update{Write: []runtime.FileWrite{{Path: "a.txt", Data: []byte("content")}}}); err != nil {
		t.Fatal(err)
	}
	for says, arguments := range map[string][]string{
		"--execution": {}, "runner": {"--execution", "x", "--right", "EXECUTE"}, "RUNNER_GONE": {"--runner", string(runtime.NewRunnerID())},
		"EXECUTION_NOT_FOUND": {"--execution", string(runtime.NewExecutionID())}, "can't be used together": {"--execution", "x", "--runner", "y"}, "1s to 720h": {"--runner", string(runner.ID), "--expires", "721h"}, "--right": {"--runner", "y", "--right", "ALL"},
	} {
		s.fails(says, append([]string{"token", "grant"}, arguments...)...)
	}
	grant := s.works("token", "grant", "--runner", string(runner.ID), "--right", "FILES_READ", "--right", "WATCH")
	if !strings.HasPrefix(grant, "rpg_") || strings.Count(grant, "\n") != 1 {
		t.Fatalf("it prints more than the grant: %q", grant)
	}
	var made struct {
		Grant struct {
			RunnerID, ExpiresAt string
			Rights              []string
		}
	}
	text := s.works("token", "grant", "--runner", string(runner.ID), "--json")
	if err := json.Unmarshal([]byte(text), &made); err != nil || made.Grant.RunnerID != string(runner.ID) || len(made.Grant.Rights) != 1 || made.Grant.Rights[0] != "WATCH" {
		t.Errorf("%v: %s", err, text)
	}
	s.as(grant)
	at := filepath.Join(t.TempDir(), "a.txt")
	s.works("runner", "cp", string(runner.ID)+":a.txt", at)
	if text, err := os.ReadFile(at); err != nil || string(text) != "content" {
		t.Errorf("%q %v", text, err)
	}
	s.fails("FORBIDDEN", "runner", "cp", at, string(runner.ID)+":b.txt")
	s.fails("FORBIDDEN", "runner", "release", string(runner.ID))
	s.fails("FORBIDDEN", "runner", "list")
	s.fails("FORBIDDEN", "token", "grant", "--runner", string(runner.ID))
}

// TestNamesDontControlTheTerminal: no stored name or label moves the cursor, starts a line, or
// changes the text direction.
func TestNamesDontControlTheTerminal(t *testing.T) {
	s := newServer(t)
	size := 1
	if _, _, err := s.engine.Environments.Put(access.With(t.Context(), access.Server()), request.Environment{ID: "e", PoolSize: &size}); err != nil {
		t.Fatal(err)
	}
	const evil = "<script>\u202etxt\u2028\u200b"
	wait := 60
	label := evil + "\x1b[2J\u009b1m\r\n\x7f"
	if _, err := s.engine.Runners.Claim(access.With(t.Context(), access.Server()), request.Claim{EnvironmentID: "e", WaitFor: &wait, Labels: []runtime.Label{{Name: label, Value: label}}}); err != nil {
		t.Fatal(err)
	}
	s.as(s.works("token", "create", evil, "--role", "ADMIN"))
	id := regexp.MustCompile("^[0-9a-f-]{36}  ")
	for _, command := range [][]string{{"token", "list"}, {"runner", "list"}} {
		for _, format := range []string{"table", "json", "yaml"} {
			out := s.works(append(slices.Clone(command), "-o", format)...)
			if !strings.Contains(out, "<script>") || strings.ContainsAny(out, "\u202e\u2028\u200b\x1b\u009b\r\x7f") {
				t.Errorf("%v as %s: %q", command, format, out)
			}
			for i, line := range slices.Collect(strings.Lines(out)) {
				if format == "table" && i > 0 && !id.MatchString(line) {
					t.Errorf("%v has the line %q", command, line)
				}
			}
		}
	}
}
