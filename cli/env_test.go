package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/client"
)

func TestEnvironmentsOfTenants(t *testing.T) {
	s := newServer(t)
	admin := s.works("token", "create", "admin", "--role", "ADMIN")
	s.as(admin)
	s.works("tenant", "put", "physics")
	s.fails("rockpool tenant list", "env", "put", "a", "--tenant", "chemistry")
	s.works("env", "put", "a", "--tenant", "physics", "--shared", "--pool-size", "0")
	s.works("env", "put", "b", "--pool-size", "0")
	is := func(id, tenant string, shared bool) {
		t.Helper()
		var got client.Environment
		if err := json.Unmarshal([]byte(s.works("env", "show", id, "--json")), &got); err != nil || got.Tenant != tenant || got.Shared != shared {
			t.Errorf("%s is %s's, shared %v, %v; want %s's, %v", id, got.Tenant, got.Shared, err, tenant, shared)
		}
	}
	is("a", "physics", true)
	is("b", "default", false)
	if list := strings.Join(strings.Fields(s.works("env", "list")), " "); !strings.Contains(list, "a physics (shared) host") || !strings.Contains(list, "b default host") {
		t.Error(list)
	}
	if shown := strings.Join(strings.Fields(s.works("env", "show", "a")), " "); !strings.Contains(shown, "tenant physics (shared)") {
		t.Error(shown)
	}

	// The output of env show can be put; flags take precedence over it.
	file := filepath.Join(t.TempDir(), "a.yaml")
	text := s.works("env", "show", "a", "-o", "yaml")
	if !strings.Contains(text, "\ntenant: physics\nshared: true\n") {
		t.Error(text)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.works("env", "put", "-f", file, "--no-shared")
	is("a", "physics", false)
	s.fails("CONFLICT", "env", "put", "-f", file)

	s.as(s.works("token", "create", "teacher", "--role", "OPERATOR", "--tenant", "physics"))
	s.fails("only a token for all tenants", "env", "put", "c", "--shared")
	s.fails("rockpool tenant list", "env", "put", "c", "--tenant", "default")
	if err := os.WriteFile(file, []byte(s.works("env", "show", "a", "-o", "yaml")), 0o600); err != nil {
		t.Fatal(err)
	}
	s.works("env", "put", "-f", file, "--pool-size", "1")
	s.works("env", "put", "c", "--pool-size", "0")
	is("c", "physics", false)
}
