package cli

import (
	"strings"
	"testing"
)

func TestWhoami(t *testing.T) {
	s := newServer(t)
	says := func(want ...string) {
		t.Helper()
		text := strings.Join(strings.Fields(s.works("whoami")), " ")
		for _, want := range want {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in %s", want, text)
			}
		}
	}
	says("caller anonymous", "kind ANONYMOUS: the server needs no token", "tenant all", "role ADMIN")
	admin := s.works("token", "create", "admin", "--role", "ADMIN")
	s.fails("UNAUTHENTICATED", "whoami")
	s.as(admin)
	says("caller admin kind TOKEN tenant all role ADMIN")
	s.works("tenant", "put", "physics")
	client := s.works("token", "create", "codeocean", "--role", "CLIENT", "--tenant", "physics")
	s.works("env", "put", "a", "--tenant", "physics", "--pool-size", "1")
	s.as(client)
	says("caller codeocean kind TOKEN tenant physics role CLIENT")
	if got := s.works("whoami", "-o", "yaml"); !strings.Contains(got, "kind: TOKEN\nname: codeocean\ntenant: physics\nrole: CLIENT\ngrant: null\n") {
		t.Error(got)
	}
	runner := strings.TrimSpace(s.works("runner", "claim", "a"))
	s.as(s.works("token", "grant", "--runner", runner, "--right", "FILES_READ", "--right", "WATCH", "--expires", "90m30s"))
	says("caller codeocean kind GRANT tenant physics", "runner "+runner+" rights", "FILES_READ", "WATCH", "ends 1 h from now")
}
