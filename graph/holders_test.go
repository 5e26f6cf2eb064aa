package graph

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/test/wait"
)

type session struct {
	Resumed bool
	Runner  struct {
		ID    string
		Claim struct{ Holder *string }
	}
	Ticket *struct {
		ID      string
		Resumed bool
	}
}

const ofSession = `{ resumed runner { id claim { holder } } ticket { id resumed } }`

// claimFor claims for ada, as the caller with a token.
func (h holder) claimFor(token, more string) session {
	h.t.Helper()
	var out struct{ ClaimRunner session }
	h.mustSendAs(token, `mutation { claimRunner(input: {environmentId: "a", holder: "ada", waitFor: 60 `+more+`}) `+ofSession+` }`, nil, &out)
	return out.ClaimRunner
}

// A holder belongs to one tenant. The response says whether the holder had the runner before. A
// grant can't claim, and doesn't see the holder.
func TestHoldersBelongToOneTenant(t *testing.T) {
	h := newHolder(t, testToken)
	_, physics := h.newToken(identity.NewToken{Role: access.Client, Tenant: "physics"})
	_, other := h.newToken(identity.NewToken{Role: access.Client, Tenant: "physics"})
	h.mustSendAs(testToken, `mutation { putTenant(input: {id: "chemistry"}) { created } }`, nil, nil)
	_, chemistry := h.newToken(identity.NewToken{Role: access.Client, Tenant: "chemistry"})
	h.mustSendAs(testToken, `mutation { putEnvironment(input: {id: "a", poolSize: 1, tenant: "physics", shared: true}) { created } }`, nil, nil)
	first := h.claimFor(physics, "")
	if first.Resumed || first.Ticket != nil || first.Runner.Claim.Holder == nil || *first.Runner.Claim.Holder != "ada" {
		t.Errorf("%+v", first)
	}
	if again := h.claimFor(other, ", inactivityTimeout: 5"); !again.Resumed || again.Runner.ID != first.Runner.ID {
		t.Errorf("%+v, then %+v", first, again)
	}
	if again := h.claimFor(physics, ", wait: TICKET"); !again.Resumed || again.Runner.ID != first.Runner.ID || again.Ticket == nil || !again.Ticket.Resumed {
		t.Errorf("%+v, then %+v", first, again)
	}
	runners := []string{first.Runner.ID}
	for name, token := range map[string]string{"another tenant": chemistry, "all tenants": testToken} {
		got := h.claimFor(token, "")
		if got.Resumed || slices.Contains(runners, got.Runner.ID) {
			t.Errorf("%s: %+v", name, got)
		}
		runners = append(runners, got.Runner.ID)
	}
	const ask = `query($r: ID!) { runner(id: $r) { claim { holder } } }`
	var made struct{ CreateGrant struct{ Token string } }
	h.mustSendAs(physics, `mutation { createGrant(input: {runnerId: "`+first.Runner.ID+`", rights: [WATCH, EXECUTE]}) { token } }`, nil, &made)
	if text := h.sendAs(made.CreateGrant.Token, ask, in{"r": first.Runner.ID}); strings.Contains(text, "ada") || !strings.Contains(text, `"holder":null`) {
		t.Errorf("a grant reads %s", text)
	}
	if text := h.sendAs(made.CreateGrant.Token, `mutation { claimRunner(input: {environmentId: "a", holder: "ada"}) { resumed } }`, nil); !strings.Contains(text, "FORBIDDEN") {
		t.Errorf("a grant claims: %s", text)
	}
	for by, want := range map[string]int{"AD": 1, "eve": 0} {
		var found struct{ Runners struct{ TotalCount int } }
		if h.mustSendAs(chemistry, `{ runners(heldBy: "`+by+`") { totalCount } }`, nil, &found); found.Runners.TotalCount != want {
			t.Errorf("%d runners are held by %s", found.Runners.TotalCount, by)
		}
	}
	for bad, says := range map[string]string{`holder: ""`: "200", `holder: "` + strings.Repeat("x", 201) + `"`: "200", `holder: "a\u0000"`: "200", `holder: "a", idempotencyKey: "b"`: "idempotencyKey"} {
		if text := h.sendAs(physics, `mutation { claimRunner(input: {environmentId: "a", `+bad+`}) { resumed } }`, nil); !strings.Contains(text, "INVALID_INPUT") || !strings.Contains(text, `"field":"holder"`) || !strings.Contains(text, says) {
			t.Errorf("%s: got %s, want INVALID_INPUT for the field holder with %q", bad, text, says)
		}
	}
}

// A claim without a holder resumes nothing, also when it is repeated.
func TestRepeatedClaimsAreNotResumed(t *testing.T) {
	b := newBed(t)
	b.environment("a", 1)
	for range 2 {
		var out struct{ ClaimRunner session }
		b.send(`mutation { claimRunner(input: {environmentId: "a", idempotencyKey: "k", waitFor: 60}) `+ofSession+` }`, nil, &out)
		if got := out.ClaimRunner; got.Resumed || got.Runner.Claim.Holder != nil {
			t.Errorf("%+v", got)
		}
	}
}

// The audit entry of a claim says whether it resumed a runner, without the holder.
func TestResumedClaimsAreInTheAuditLog(t *testing.T) {
	b, client := tenanted(t, runtime.Quotas{})
	claims := func(more string) in {
		t.Helper()
		return asked(t, b, client, `mutation { claimRunner(input: {environmentId: "a", holder: "ada", waitFor: 60 `+more+`}) `+ofSession+` }`).Data["claimRunner"].(in)
	}
	runner := claims("")["runner"].(in)["id"].(string)
	claims("")
	ticket := claims(", wait: TICKET")["ticket"].(in)["id"].(string)
	resumed := auditDetailOf{"resumed", "true"}
	want := []auditEntryOf{
		{"RUNNER", runner, "OK", []auditDetailOf{}}, {"RUNNER", runner, "OK", []auditDetailOf{resumed}},
		{"RUNNER", runner, "OK", []auditDetailOf{resumed, {"ticket", ticket}}}, {"TICKET", ticket, "OK", []auditDetailOf{resumed}},
	}
	var got []auditEntryOf
	wait.For(t, "all are recorded", func() bool { got = b.audited(t, "claimRunner"); return len(got) >= len(want) })
	slices.SortFunc(got[2:], func(a, b auditEntryOf) int { return strings.Compare(a.ObjectKind, b.ObjectKind) }) // they are written concurrently
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
