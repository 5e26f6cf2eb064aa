package graph

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/test/wait"
)

// follows subscribes to the holder's execution. It returns the refusal; "" means the subscription runs
// until the test ends.
func (h holder) follows(shown string) string {
	h.t.Helper()
	response, err := http.DefaultClient.Do(h.request(shown, following, true))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode == http.StatusOK {
		return ""
	}
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusTooManyRequests {
		h.t.Errorf("%s %v", response.Status, err)
	}
	return string(text)
}

// A platform with one token gives a grant to each of its users. Each grant has separate limits. The
// tenant's quota counts all of them.
func TestEachGrantHasSeparateLimits(t *testing.T) {
	h := newBoundedHolder(t, testToken, clients.Bounds{TokenSubscriptions: 1})
	_, token := h.newToken(identity.NewToken{Role: access.Client, Tenant: "physics"})
	one := h.granted(token, time.Hour)
	for what, shown := range map[string]string{"a grant": one, "another one": h.granted(token, time.Hour), "its token": token} {
		if refused := h.follows(shown); refused != "" {
			t.Errorf("%s: got %s, want \"\"", what, refused)
		}
	}
	wait.For(t, "all follow", func() bool { return h.engine.Callers.Usage(runtime.Tenant{ID: "physics"}).Subscriptions.Used == 3 })
	for what, shown := range map[string]string{"the same grant": one, "its token": token} {
		if refused := h.follows(shown); !strings.Contains(refused, "--token-subscriptions") {
			t.Errorf("%s again: %q", what, refused)
		}
	}
	if _, _, err := h.registry.PutTenant(t.Context(), "physics", nil, &runtime.Quotas{Subscriptions: ptr(3)}); err != nil {
		t.Fatal(err)
	}
	if refused := h.follows(h.granted(token, time.Hour)); !strings.Contains(refused, `"quota":"subscriptions"`) {
		t.Errorf("beyond the tenant's quota: %q", refused)
	}
}

// A grant reads no labels of an execution, of its events or of a claim, since they often name
// people.
func TestGrantsReadNoLabels(t *testing.T) {
	h := newHolder(t, testToken)
	_, token := h.newToken(identity.NewToken{Role: access.Client, Tenant: "physics"})
	var claimed struct {
		ClaimRunner struct{ Runner struct{ ID string } }
	}
	h.mustSendAs(testToken, `mutation { putEnvironment(input: {id: "a", poolSize: 1, tenant: "physics"}) { created } }`, nil, nil)
	h.mustSendAs(token, `mutation { claimRunner(input: {environmentId: "a", waitFor: 60, labels: [{name: "user", value: "lovelace"}]}) { runner { id } } }`, nil, &claimed)
	runner := claimed.ClaimRunner.Runner.ID
	var started struct {
		StartExecution struct{ Execution struct{ ID string } }
	}
	h.mustSendAs(token, `mutation($id: ID!) { startExecution(input: {runnerId: $id, command: ["true"], labels: [{name: "course", value: "lovelace"}]}) { execution { id } } }`, in{"id": runner}, &started)
	execution := started.StartExecution.Execution.ID
	grant := func(object string) string {
		var made struct{ CreateGrant struct{ Token string } }
		h.mustSendAs(token, `mutation { createGrant(input: {`+object+`, rights: [WATCH]}) { token } }`, nil, &made)
		return made.CreateGrant.Token
	}
	ofRunner := grant(`runnerId: "` + runner + `"`)
	const labels = `labels { name value }`
	for _, ask := range []struct{ grant, query string }{
		{grant(`executionId: "` + execution + `"`), `query($x: ID!) { execution(id: $x, waitFor: 60) { id ` + labels + ` } }`},
		{ofRunner, `query($x: ID!) { execution(id: $x) { id ` + labels + ` runner { claim { ` + labels + ` } } } }`},
		{ofRunner, `query($r: ID!) { runner(id: $r) { id claim { ` + labels + ` } } }`},
	} {
		ids := in{"x": execution, "r": runner}
		if text := h.sendAs(ask.grant, ask.query, ids); strings.Contains(text, "lovelace") || !strings.Contains(text, `"labels":[]`) {
			t.Errorf("%s: %s", ask.query, text)
		}
		if text := h.sendAs(token, ask.query, ids); !strings.Contains(text, "lovelace") {
			t.Errorf("the token reads none: %s", text)
		}
	}
	events := `subscription { executionEvents(executionId: "` + execution + `") { ... on ExecutionFinished { execution { state ` + labels + ` runner { claim { ` + labels + ` } } } } } }`
	for shown, reads := range map[string]bool{ofRunner: false, token: true} {
		all := h.follow(shown, events)("FINISHED")
		if text := all[len(all)-1]; strings.Contains(text, "lovelace") != reads {
			t.Errorf("reads labels, is to: %t: %s", reads, text)
		}
	}
}
