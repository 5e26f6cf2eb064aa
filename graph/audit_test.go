package graph

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/test/wait"
)

// Callers' changes and attempted changes are in the audit log of their tenant, without the contents
// of their requests.
func TestChangesAreInTheAuditLog(t *testing.T) {
	const canary = "canary-4711"
	b, client := tenanted(t, runtime.Quotas{})
	claimed := asked(t, b, client, claimA)
	runner := claimed.Data["claimRunner"].(in)["runner"].(in)["id"].(string)
	started := asked(t, b, client, `mutation { startExecution(input: {runnerId: "`+runner+`", command: ["echo", "`+canary+`"], variables: [{name: "A", value: "`+canary+`"}]}) { execution { id } } }`)
	execution := started.Data["startExecution"].(in)["execution"].(in)["id"].(string)
	asked(t, b, client, `mutation { updateFiles(input: {runnerId: "`+runner+`", write: [{path: "a", text: "`+canary+`"}]}) { written } }`)
	asked(t, b, client, `mutation { deleteEnvironment(input: {id: "a"}) { deleted } }`) // FORBIDDEN
	b.sendAs(canary, `{ version }`)                                                     // UNAUTHENTICATED

	type entry struct{ Tenant, ActorKind, ActorName, Role, Action, ObjectKind, ObjectID, Address, Outcome string }
	var log struct{ AuditLog struct{ Nodes []entry } }
	data, _ := json.Marshal(b.sendAs(testToken, `{ auditLog { nodes { tenant actorKind actorName role action objectKind objectId address outcome } } }`).Data)
	if err := json.Unmarshal(data, &log); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), canary) {
		t.Errorf("it has what callers sent: %s", data)
	}
	by := entry{Tenant: "physics", ActorKind: "TOKEN", ActorName: "client", Role: "CLIENT", Address: "127.0.0.1", Outcome: "OK"}
	did := func(action, kind, id, outcome string) entry {
		e := by
		e.Action, e.ObjectKind, e.ObjectID, e.Outcome = action, kind, id, outcome
		return e
	}
	for _, want := range []entry{
		did("claimRunner", "RUNNER", runner, "OK"), did("startExecution", "EXECUTION", execution, "OK"), did("updateFiles", "RUNNER", runner, "OK"),
		did("deleteEnvironment", "ENVIRONMENT", "a", "FORBIDDEN"),
		{ActorKind: "UNKNOWN", Action: "authenticate", Address: "127.0.0.1", Outcome: "UNAUTHENTICATED"},
	} {
		if !slices.Contains(log.AuditLog.Nodes, want) {
			t.Errorf("%+v is missing in %s", want, data)
		}
	}
	for filter, both := range map[string][2]bool{"failed: true": {false, true}, "failed: false": {true, false}, "failed: null": {true, true}} {
		data, _ := json.Marshal(b.sendAs(testToken, `{ auditLog(`+filter+`) { nodes { outcome } } }`).Data)
		if got := [2]bool{strings.Contains(string(data), `"OK"`), strings.Contains(string(data), `"FORBIDDEN"`)}; got != both {
			t.Errorf("%s: %s", filter, data)
		}
	}
	asked(t, b, client, `mutation { releaseRunner(id: "none") { released } }`)
	b.sendAs(testToken, `mutation { releaseRunner(id: "`+runner+`") { released } }`)
	b.sendAs(testToken, `mutation { putTenant(input: {id: "chemistry"}) { created } }`)
	admin := func(tenant runtime.TenantID) string {
		t.Helper()
		_, secret, err := b.registry.CreateToken(t.Context(), access.Server(), identity.NewToken{Kind: access.KindToken, Name: "admin", Role: access.Admin, Tenant: tenant})
		if err != nil {
			t.Fatal(err)
		}
		data, _ := json.Marshal(b.sendAs(secret, `{ auditLog { nodes { actorName action objectId outcome } } }`).Data)
		return string(data)
	}
	const byServersAdmin = `{"action":"releaseRunner","actorName":"token file"`
	if text := admin("physics"); !strings.Contains(text, byServersAdmin) || !strings.Contains(text, `"objectId":"none","outcome":"RUNNER_GONE"`) || strings.Contains(text, "putTenant") {
		t.Errorf("physics reads %s", text)
	}
	if text := admin(runtime.DefaultTenant); text != `{"auditLog":{"nodes":[]}}` {
		t.Errorf("the default tenant reads %s", text)
	}
	if a := asked(t, b, client, `{ auditLog { nodes { id } } }`); a.code() != "FORBIDDEN" {
		t.Errorf("a client reads it: %+v", a)
	}
}

// A tenant with the name of a deleted one sees nothing of it. The name is free when the executions
// of the deleted tenant are gone. The audit log of the new tenant begins with its creation.
func TestNewTenantSeesNothingOfADeletedNamesake(t *testing.T) {
	b, client := tenanted(t, runtime.Quotas{})
	asked(t, b, client, `mutation { releaseRunner(id: "none") { released } }`)
	asked(t, b, client, claimA)
	const put, del = `mutation { putTenant(input: {id: "physics"}) { created } }`, `mutation { deleteTenant(id: "physics") { deleted } }`
	b.sendAs(testToken, `mutation { deleteEnvironment(input: {id: "a", endClaimed: true}) { deleted } }`)
	if a := b.sendAs(testToken, del); a.code() != nil {
		t.Fatalf("%+v", a.Errors)
	}
	deleted := time.Now()
	wait.For(t, "the claimed runner and its replacement are removed", func() bool {
		all, err := b.engine.Runners.List(access.With(t.Context(), access.Server()), request.Runners{})
		return err == nil && len(all) == 0
	})
	// The tenant's creation divides the log to the millisecond.
	wait.For(t, "the next millisecond", func() bool { return time.Now().UnixMilli() > deleted.UnixMilli() })
	if a := b.sendAs(testToken, put); a.code() != nil {
		t.Fatalf("%+v", a.Errors)
	}
	_, secret, err := b.registry.CreateToken(t.Context(), access.Server(), identity.NewToken{Kind: access.KindToken, Name: "admin", Role: access.Admin, Tenant: "physics"})
	if err != nil {
		t.Fatal(err)
	}
	b.sendAs(secret, `mutation { releaseRunner(id: "own") { released } }`)
	for shown, old := range map[string]bool{secret: false, testToken: true} {
		for _, filter := range []string{"", "(from: \"2020-01-01T00:00:00Z\")"} {
			data, _ := json.Marshal(b.sendAs(shown, `{ auditLog`+filter+` { nodes { objectId } } }`).Data)
			if text := string(data); strings.Contains(text, `"none"`) != old || !strings.Contains(text, `"own"`) {
				t.Errorf("with %.6s: %s", shown, text)
			}
		}
	}
	// Now the tenant leaves an execution.
	b.sendAs(testToken, `mutation { putEnvironment(input: {id: "a", tenant: "physics", poolSize: 1}) { created } }`)
	if a := b.sendAs(secret, `mutation { run(input: {environmentId: "a", waitFor: 60, command: ["true"]}) { execution { id } } }`); a.code() != nil {
		t.Fatalf("%+v", a.Errors)
	}
	b.sendAs(testToken, `mutation { deleteEnvironment(input: {id: "a", endClaimed: true}) { deleted } }`)
	if a := b.sendAs(testToken, del); a.code() != nil {
		t.Fatalf("%+v", a.Errors)
	}
	if a := b.sendAs(testToken, put); a.code() != "CONFLICT" {
		t.Errorf("got %+v, want CONFLICT", a.Errors)
	}
}

// audited returns the log's entries about an action.
func (b bed) audited(t *testing.T, action string) (all []auditEntryOf) {
	t.Helper()
	var log struct {
		AuditLog struct{ Nodes []auditEntryOf }
	}
	data, _ := json.Marshal(b.sendAs(testToken, `{ auditLog(action: "`+action+`") { nodes { objectKind objectId outcome details { name value } } } }`).Data)
	if err := json.Unmarshal(data, &log); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return log.AuditLog.Nodes
}

type auditEntryOf struct {
	ObjectKind, ObjectID, Outcome string
	Details                       []auditDetailOf
}

type auditDetailOf struct{ Name, Value string }

// A grant's entry has its rights, and never the grant itself.
func TestGrantsAreInTheAuditLogWithTheirRights(t *testing.T) {
	b, client := tenanted(t, runtime.Quotas{})
	runner := asked(t, b, client, claimA).Data["claimRunner"].(in)["runner"].(in)["id"].(string)
	made := asked(t, b, client, `mutation { createGrant(input: {runnerId: "`+runner+`", rights: [WATCH, FILES_READ], expiresIn: 60}) { token grant { id expiresAt } } }`)
	grant := made.Data["createGrant"].(in)
	asked(t, b, client, `mutation { createGrant(input: {executionId: "none", rights: [WATCH]}) { token } }`)
	got := b.audited(t, "createGrant")
	expires, _ := time.Parse(time.RFC3339Nano, grant["grant"].(in)["expiresAt"].(string))
	want := []auditEntryOf{
		{"GRANT", grant["grant"].(in)["id"].(string), "OK", []auditDetailOf{{"expiresAt", expires.UTC().Format(time.RFC3339)}, {"rights", "FILES_READ WATCH"}, {"runner", runner}}},
		{"GRANT", "", "EXECUTION_NOT_FOUND", []auditDetailOf{{"execution", "none"}, {"rights", "WATCH"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if text := fmt.Sprint(got); strings.Contains(text, grant["token"].(string)) {
		t.Errorf("the grant is in %s", text)
	}
}

// A claim through a ticket names its runner, also if the runner comes later.
func TestRunnersOfTicketsAreInTheAuditLog(t *testing.T) {
	b, client := tenanted(t, runtime.Quotas{})
	b.sendAs(testToken, `mutation { putEnvironment(input: {id: "empty", tenant: "physics", poolSize: 0}) { created } }`)
	for _, environment := range []string{"a", "empty"} {
		made := asked(t, b, client, `mutation { claimRunner(input: {environmentId: "`+environment+`", wait: TICKET}) { ticket { id } } }`)
		ticket := made.Data["claimRunner"].(in)["ticket"].(in)["id"].(string)
		runner := ""
		wait.For(t, "the ticket has its runner", func() bool {
			now := asked(t, b, client, `{ ticket(id: "`+ticket+`") { runner { id } } }`).Data["ticket"].(in)
			if of, ok := now["runner"].(in); ok {
				runner = of["id"].(string)
			}
			return runner != ""
		})
		for _, want := range []auditEntryOf{{"TICKET", ticket, "OK", []auditDetailOf{}}, {"RUNNER", runner, "OK", []auditDetailOf{{"ticket", ticket}}}} {
			wait.For(t, want.ObjectKind+" is in the log", func() bool {
				return slices.ContainsFunc(b.audited(t, "claimRunner"), func(e auditEntryOf) bool { return cmp.Equal(e, want) })
			})
		}
	}
}

// A caller that disconnects isn't recorded as a fault of the server.
func TestDisconnectsAreInTheAuditLogAsCancelled(t *testing.T) {
	b, client := tenanted(t, runtime.Quotas{Runners: ptr(1)})
	asked(t, b, client, claimA)
	body, _ := json.Marshal(in{"query": claimA})
	ctx, leave := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/graphql", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = client.Clone()
	r.Header.Set("Content-Type", "application/json")
	left := make(chan struct{})
	go func() {
		defer close(left)
		if response, err := http.DefaultClient.Do(r); err == nil {
			_ = response.Body.Close()
		}
	}()
	wait.For(t, "the claim waits", func() bool { return b.engine.Callers.Usage(runtime.Tenant{ID: "physics"}).Waiting.Used == 1 })
	leave()
	<-left
	var got []auditEntryOf
	wait.For(t, "it is recorded", func() bool { got = b.audited(t, "claimRunner"); return len(got) == 2 })
	if got[1].Outcome != "CANCELLED" {
		t.Errorf("%+v", got)
	}
}
