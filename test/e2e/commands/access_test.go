package commands

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/need"
)

// TestE2EAccessCommands checks an open server, then two tenants and what they see of each other,
// also after a restart.
func TestE2EAccessCommands(t *testing.T) {
	need.Sandboxes(t)
	settings := bed.Settings(t.TempDir(), bed.Cgroups+"-access")
	b, stop := bed.ServeHere(t, settings)
	as := func(secret string) func(args ...string) (string, string, int) {
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
		return func(args ...string) (string, string, int) {
			at := slices.Index(append(slices.Clone(args), "--"), "--") // flags after it belong to the program
			var out, errs bytes.Buffer
			code := bed.RunCLI(slices.Insert(slices.Clone(args), at, "--token-file", file, "--server", b.Address), nil, &out, &errs)
			return out.String(), errs.String(), code
		}
	}
	works := func(by func(args ...string) (string, string, int), args ...string) string {
		t.Helper()
		out, errs, code := by(args...)
		if code != 0 {
			t.Fatalf("%q: %d %s", args, code, errs)
		}
		return strings.TrimSpace(out)
	}
	fails := func(says string, by func(args ...string) (string, string, int), args ...string) {
		t.Helper()
		if out, errs, code := by(args...); code == 0 || !strings.Contains(errs, says) {
			t.Errorf("%q: %d %s %s, want %s", args, code, out, errs, says)
		}
	}

	secret := strings.TrimSpace(b.Works(t, "token", "create", "admin", "--role", "ADMIN"))
	if _, errs, code := b.Command(t, "", "env", "list"); code == 0 || !strings.Contains(errs, "UNAUTHENTICATED") {
		t.Fatalf("the server is still open: %d %s", code, errs)
	}
	admin := as(secret)
	works(admin, "tenant", "put", "physics")
	works(admin, "tenant", "put", "chemistry")
	token := func(role, tenant string) (string, func(args ...string) (string, string, int)) {
		var made struct {
			Secret string
			Token  struct{ ID string }
		}
		if err := json.Unmarshal([]byte(works(admin, "token", "create", "t", "--role", role, "--tenant", tenant, "--json")), &made); err != nil {
			t.Fatal(err)
		}
		return made.Token.ID, as(made.Secret)
	}
	_, operator := token("OPERATOR", "physics")
	clientID, client := token("CLIENT", "physics")
	_, other := token("OPERATOR", "chemistry")

	works(operator, "env", "put", "lab", "--pool-size", "1", "--memory", "64")
	if out := works(client, "run", "--env", "lab", "--", "echo", "mine"); out != "mine" {
		t.Errorf("got %q, want \"mine\"", out)
	}
	fails(`environment "lab" doesn't exist`, other, "run", "--env", "lab", "--", "echo", "theirs")
	fails("doesn't exist", other, "env", "delete", "lab")
	fails("CONFLICT", other, "env", "put", "lab", "--pool-size", "2")
	if out := works(other, "env", "list"); strings.Contains(out, "lab") {
		t.Errorf("another tenant sees it: %s", out)
	}
	fails("FORBIDDEN", client, "env", "put", "mine", "--pool-size", "0")
	fails("FORBIDDEN", operator, "env", "put", "lab", "--shared")
	works(admin, "env", "put", "lab", "--shared")
	if out := works(other, "env", "list"); !strings.Contains(out, "physics (shared)") {
		t.Errorf("it isn't shared: %s", out)
	}
	runner := works(other, "ticket", "watch", works(other, "runner", "claim", "lab", "--ticket"))
	works(other, "runner", "release", runner)
	works(admin, "env", "put", "lab", "--no-shared")
	if out := works(other, "whoami", "--json"); !strings.Contains(out, `"tenant": "chemistry"`) {
		t.Error(out)
	}
	if out := works(admin, "audit", "--action", "releaseRunner", "--object", runner); !strings.Contains(out, "tenant chemistry  from 127.0.0.1") {
		t.Errorf("the audit log: %q", out)
	}
	fails("FORBIDDEN", client, "audit")
	fails("FORBIDDEN", client, "token", "create", "t", "--role", "OBSERVER")

	runner = works(client, "runner", "claim", "lab")
	fails("doesn't exist", other, "runner", "release", runner)
	grant := as(works(client, "token", "grant", "--runner", runner, "--right", "FILES_WRITE", "--right", "FILES_READ"))
	file := filepath.Join(t.TempDir(), "a.txt")
	if err := os.WriteFile(file, []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	works(grant, "runner", "cp", file, runner+":a.txt")
	fails("FORBIDDEN", grant, "runner", "release", runner)

	stop()
	b, _ = bed.ServeHere(t, settings)
	fails("UNAUTHENTICATED", as("wrong"), "env", "list")
	if out := works(client, "env", "list"); !strings.Contains(out, "lab") {
		t.Errorf("a token doesn't survive a restart: %s", out)
	}
	fails("doesn't exist: `rockpool runner list`", grant, "runner", "cp", file, runner+":a.txt") // the tenant knows the runner, but the server's restart removed it
	works(admin, "token", "revoke", clientID)
	fails("UNAUTHENTICATED", client, "env", "list")
	fails("UNAUTHENTICATED", grant, "runner", "cp", file, runner+":a.txt")
}
