package graph

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/runtime/pool"
	"github.com/rockpool/rockpool/test/clustertest"
)

// newBedOfTenants returns a bed that requires tokens. Runners of environments whose ids begin with
// "low" don't start, so these have an alert.
func newBedOfTenants(t *testing.T) bed {
	t.Helper()
	fake := clustertest.NewFake()
	b := newBedWith(t, lowFake{fake}, fake, bedOptions{Token: testToken, Alert: pool.AlertRule{Threshold: 1, Timeout: time.Millisecond}})
	return b
}

type lowFake struct{ *clustertest.Fake }

func (f lowFake) Start(ctx context.Context, id runtime.RunnerID, env runtime.Environment, p runtime.Priority) error {
	if strings.HasPrefix(string(env.ID), "low") {
		return errors.New("it doesn't start")
	}
	return f.Fake.Start(ctx, id, env, p)
}

// sendAs sends an operation as a caller, and returns the whole response.
func (w *world) sendAs(token, query string, variables in) string {
	w.t.Helper()
	body, _ := json.Marshal(in{"query": query, "variables": variables})
	request, _ := http.NewRequestWithContext(w.t.Context(), "POST", w.url+"/graphql", strings.NewReader(string(body)))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

// mustSendAs is with, for a response without errors.
func (w *world) mustSendAs(token, query string, variables in, out any) {
	w.t.Helper()
	text := w.sendAs(token, query, variables)
	whole := struct{ Data any }{out}
	if err := json.Unmarshal([]byte(text), &whole); err != nil || strings.Contains(text, `"errors"`) {
		w.t.Fatalf("%s: %s %v", query, text, err)
	}
}

// follow subscribes. until reads events until one contains a text, and returns all of them.
func (w *world) follow(token, query string) (until func(text string) []string) {
	w.t.Helper()
	c, err := dial(w.t, w.url, http.Header{"Authorization": {"Bearer " + token}})
	if err != nil {
		w.t.Fatal(err)
	}
	c.open(query)
	return func(text string) (all []string) {
		w.t.Helper()
		for {
			event := string(c.receive("next").Payload)
			if all = append(all, event); strings.Contains(event, text) {
				return all
			}
		}
	}
}

func (o *things) ids() []string {
	return []string{o.environment, o.low, o.runner, o.execution, o.batch, o.token}
}

// No list contains or counts objects of another tenant.
func TestListsShowOneTenant(t *testing.T) {
	w := newWorld(t)
	_, all := w.newToken(identity.NewToken{Role: access.Admin, AllTenants: true})
	lists := map[string][]string{ // with the things of a tenant that are in each list
		"{ environments { id tenant } }":                               {w.own.environment, w.another.low},
		"{ runners { nodes { id tenant } totalCount } }":               {w.own.runner, w.another.runner},
		"{ executions { nodes { id tenant } totalCount } }":            {w.own.execution, w.another.execution},
		"{ batches { nodes { id tenant } totalCount } }":               {w.own.batch, w.another.batch},
		"{ poolAlerts { environmentId } }":                             {w.own.low},
		"{ poolAlertHistory { environmentId state } }":                 {w.own.low},
		"{ health { components { name } } }":                           {w.own.environment, w.own.low},
		"{ tenants { id } }":                                           {"physics"},
		"{ tokens { id tenant } }":                                     {w.own.token, w.another.token},
		"{ runners(newestFirst: true) { nodes { id } totalCount } }":   {w.own.runner},
		"{ executions(newestFirst: true) { nodes { id } totalCount }}": {w.own.execution},
	}
	follow := w.follow(all, "subscription { poolAlerts { environmentId state } }")
	follow(w.foreign.low)
	follow = w.follow(all, "subscription { poolAlerts { environmentId state } }")
	follow(w.own.low)
	for _, role := range access.Roles() {
		_, token := w.newToken(identity.NewToken{Role: role, Tenant: "physics"})
		for query, has := range lists {
			text := w.sendAs(token, query, nil)
			if strings.Contains(query, "tokens") && role != access.Admin {
				continue // refused: see the table
			}
			for _, id := range has {
				if !strings.Contains(text, `"`+id+`"`) && !strings.Contains(text, " "+id+`"`) {
					t.Errorf("%s as %s: %s isn't there: %s", query, role, id, text)
				}
			}
			for _, id := range append(w.foreign.ids(), "chemistry") {
				if strings.Contains(text, id) {
					t.Errorf("%s as %s: %s is there: %s", query, role, id, text)
				}
			}
			if !strings.Contains(w.sendAs(all, query, nil), has[0]) {
				t.Errorf("%s for all tenants: %s isn't there", query, has[0])
			}
			if strings.Contains(query, "totalCount") {
				var out map[string]struct {
					Nodes      []any
					TotalCount int
				}
				w.mustSendAs(token, query, nil, &out)
				for _, list := range out {
					if list.TotalCount != len(list.Nodes) {
						t.Errorf("%s as %s: %d of %d", query, role, len(list.Nodes), list.TotalCount)
					}
				}
			}
		}
	}
}

// No subscription has an event of another tenant's object.
func TestSubscriptionsShowOneTenant(t *testing.T) {
	w := newWorld(t)
	_, all := w.newToken(identity.NewToken{Role: access.Observer, AllTenants: true})
	_, one := w.newToken(identity.NewToken{Role: access.Observer, Tenant: "physics"})
	for query, of := range map[string]func(o *things) string{
		"subscription { runnerEvents { runner { id tenant environmentId } } }": runnerOf,
		"subscription { poolStatus { environmentId } }":                        environmentOf,
		"subscription { poolAlerts { environmentId } }":                        lowOf,
	} {
		everything, mine := w.follow(all, query), w.follow(one, query)
		foreign := w.make("chemistry")
		everything(of(foreign)) // it would have been sent before
		own := w.make("physics")
		for _, event := range mine(of(own)) {
			for _, id := range append(append(foreign.ids(), w.foreign.ids()...), "chemistry") {
				if strings.Contains(event, id) {
					t.Errorf("%s: %s", query, event)
				}
			}
		}
	}
}

// Every tenant may claim in a shared environment. The runner then belongs to that tenant alone.
func TestSharedEnvironments(t *testing.T) {
	w := newWorld(t)
	_, owner := w.newToken(identity.NewToken{Role: access.Operator, Tenant: "chemistry"})
	_, claimer := w.newToken(identity.NewToken{Role: access.Operator, Tenant: "physics"})
	const put = `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created environment { tenant shared } } }`
	_, admin := w.newToken(identity.NewToken{Role: access.Operator, AllTenants: true})
	if text := w.sendAs(owner, put, in{"in": in{"id": "lab", "poolSize": 1, "shared": true}}); !strings.Contains(text, "FORBIDDEN") {
		t.Errorf("a tenant's operator shares an environment: %s", text)
	}
	w.mustSendAs(admin, put, in{"in": in{"id": "lab", "poolSize": 1, "tenant": "chemistry", "shared": true}}, nil)
	const events = `subscription { runnerEvents(environmentId: "lab") { runner { id state tenant claim { labels { name } } message } } }`
	ownersEvents, claimersEvents := w.follow(owner, events), w.follow(claimer, `subscription { runnerEvents { runner { id state tenant } } }`)
	idle := ownersEvents(`"IDLE"`)
	var runners struct {
		Runners struct{ Nodes []struct{ ID string } }
	}
	w.mustSendAs(owner, `{ runners(environmentId: "lab", states: [IDLE]) { nodes { id } } }`, nil, &runners)
	if len(runners.Runners.Nodes) != 1 {
		t.Fatal(runners)
	}
	runner := runners.Runners.Nodes[0].ID
	var granted struct{ CreateGrant struct{ Token string } }
	w.mustSendAs(owner, `mutation($id: ID!) { createGrant(input: {runnerId: $id, rights: [EXECUTE, FILES_WRITE, WATCH]}) { token } }`, in{"id": runner}, &granted)
	if text := w.sendAs(claimer, `{ environments { id } }`, nil); !strings.Contains(text, `"lab"`) {
		t.Errorf("others don't see it: %s", text)
	}
	if text := w.sendAs(claimer, `query($id: ID!) { runner(id: $id) { id } }`, in{"id": runner}); strings.Contains(text, runner) {
		t.Errorf("others see its idle runners: %s", text)
	}

	var claimed struct {
		ClaimRunner struct{ Runner struct{ ID, Tenant string } }
	}
	w.mustSendAs(claimer, `mutation { claimRunner(input: {environmentId: "lab", labels: [{name: "secret", value: "s"}]}) { runner { id tenant } } }`, nil, &claimed)
	if got := claimed.ClaimRunner.Runner; got.ID != runner || got.Tenant != "physics" {
		t.Errorf("claimed %+v", got)
	}
	after := ownersEvents(`"GONE"`)
	for _, event := range append(idle, after...) {
		if strings.Contains(event, "secret") || strings.Contains(event, "physics") || strings.Contains(event, `"CLAIMED"`) {
			t.Errorf("the owner sees the claim: %s", event)
		}
	}
	if last := after[len(after)-1]; !strings.Contains(last, runner) || !strings.Contains(last, "claimed") {
		t.Errorf("the last event is %s, want %s claimed by another tenant", last, runner)
	}
	claimersEvents(runner)

	started := w.sendAs(claimer, `mutation($id: ID!) { startExecution(input: {runnerId: $id, command: ["cat"], stdin: true}) { execution { id } } }`, in{"id": runner})
	var ids struct {
		Data struct {
			StartExecution struct{ Execution struct{ ID string } }
		}
	}
	if err := json.Unmarshal([]byte(started), &ids); err != nil || ids.Data.StartExecution.Execution.ID == "" {
		t.Fatal(started)
	}
	execution := ids.Data.StartExecution.Execution.ID
	for _, who := range []string{owner, granted.CreateGrant.Token} {
		for _, query := range []string{
			`query($id: ID!) { runner(id: $id) { id } }`, `query($id: ID!) { runners { nodes { id } } executions(runnerId: $id) { nodes { id runnerId } } }`,
			`mutation($id: ID!) { startExecution(input: {runnerId: $id, command: ["true"]}) { execution { id } } }`,
			`mutation($id: ID!) { updateFiles(input: {runnerId: $id, write: [{path: "x", text: "x"}]}) { written } }`,
		} {
			text := w.sendAs(who, query, in{"id": runner})
			if data, _, _ := strings.Cut(text, `"message"`); strings.Contains(data, runner) || strings.Contains(text, execution) || strings.Contains(text, "written\":[") {
				t.Errorf("%s: the owner reaches the claimed runner: %s", query, text)
			}
		}
	}
	if text := w.sendAs(claimer, put, in{"in": in{"id": "lab", "poolSize": 9}}); !strings.Contains(text, `"CONFLICT"`) {
		t.Errorf("others change it: %s", text)
	}
	if text := w.sendAs(claimer, `mutation { deleteEnvironment(input: {id: "lab", endClaimed: true}) { deleted } }`, nil); !strings.Contains(text, `"deleted":false`) {
		t.Errorf("others delete it: %s", text)
	}
	w.mustSendAs(owner, put, in{"in": in{"id": "lab", "shared": false}}, nil)
	if text := w.sendAs(claimer, `{ environment(id: "lab") { id } }`, nil); !strings.Contains(text, `"environment":null`) {
		t.Errorf("others see it when it isn't shared any more: %s", text)
	}
	if text := w.sendAs(claimer, `query($id: ID!) { runner(id: $id) { id } }`, in{"id": runner}); !strings.Contains(text, runner) {
		t.Errorf("the holder lost its runner: %s", text)
	}
}

// An idempotencyKey belongs to its tenant, or to the callers for all tenants.
func TestIdempotencyKeysBelongToOneTenant(t *testing.T) {
	w := newWorld(t)
	_, admin := w.newToken(identity.NewToken{Role: access.Operator, AllTenants: true})
	w.mustSendAs(admin, `mutation { putEnvironment(input: {id: "lab", poolSize: 2, tenant: "chemistry", shared: true}) { created } }`, nil, nil)
	var tokens []string
	for _, tenant := range []runtime.TenantID{"chemistry", "physics", runtime.DefaultTenant} {
		_, token := w.newToken(identity.NewToken{Role: access.Client, Tenant: tenant})
		tokens = append(tokens, token)
	}
	tokens = append(tokens, admin)
	seen := map[string]bool{}
	first := func(name, query string, of func(token string) in) {
		for _, token := range tokens {
			text := w.sendAs(token, query, of(token))
			id := onlyID(text)
			switch {
			case id == "" || seen[id]:
				t.Errorf("%s: %s", name, text)
			case onlyID(w.sendAs(token, query, of(token))) != id:
				t.Errorf("%s: a repetition gives another one", name)
			}
			seen[id] = true
		}
	}
	none := func(string) in { return nil }
	runners := map[string]string{}
	first("claimRunner", `mutation { claimRunner(input: {environmentId: "lab", idempotencyKey: "k", waitFor: 60}) { runner { id } } }`, none)
	for _, token := range tokens {
		runners[token] = onlyID(w.sendAs(token, `mutation { claimRunner(input: {environmentId: "lab", idempotencyKey: "k", waitFor: 60}) { runner { id } } }`, nil))
	}
	of := func(token string) in { return in{"id": runners[token]} }
	first("run", `mutation { run(input: {environmentId: "lab", command: ["true"], idempotencyKey: "k", waitFor: 60}) { execution { id } } }`, none)
	first("run with cases", `mutation { run(input: {environmentId: "lab", command: ["true"], cases: [{}], idempotencyKey: "kc", waitFor: 60}) { batch { id } } }`, none)
	first("startExecution", `mutation($id: ID!) { startExecution(input: {runnerId: $id, command: ["true"], idempotencyKey: "k"}) { execution { id } } }`, of)
	first("startExecution with cases", `mutation($id: ID!) { startExecution(input: {runnerId: $id, command: ["true"], cases: [{}], idempotencyKey: "kc"}) { batch { id } } }`, of)
}

// A retry finds the earlier result, whatever happened to the runner and to the environment.
func TestIdempotencyKeysOfCallersForAllTenants(t *testing.T) {
	w := newWorld(t)
	_, admin := w.newToken(identity.NewToken{Role: access.Operator, AllTenants: true})
	put := func(tenant string) {
		t.Helper()
		w.mustSendAs(admin, `mutation($tenant: String!) { putEnvironment(input: {id: "lab", poolSize: 2, tenant: $tenant}) { created } }`, in{"tenant": tenant}, nil)
	}
	put("chemistry")
	const (
		claim = `mutation { claimRunner(input: {environmentId: "lab", idempotencyKey: "k", waitFor: 60}) { runner { id } } }`
		run   = `mutation { run(input: {environmentId: "lab", command: ["true"], idempotencyKey: "k", waitFor: 60}) { execution { id } } }`
		start = `mutation($id: ID!) { startExecution(input: {runnerId: $id, command: ["true"], idempotencyKey: "k"}) { execution { id } } }`
	)
	runner, ran := onlyID(w.sendAs(admin, claim, nil)), onlyID(w.sendAs(admin, run, nil))
	started := onlyID(w.sendAs(admin, start, in{"id": runner}))
	again := func(when string, held bool) {
		t.Helper()
		if text := w.sendAs(admin, claim, nil); held && onlyID(text) != runner || !held && !strings.Contains(text, `"RUNNER_GONE"`) {
			t.Errorf("%s: claimRunner: %s", when, text)
		}
		if text := w.sendAs(admin, run, nil); ran == "" || onlyID(text) != ran {
			t.Errorf("%s: run: %s", when, text)
		}
		if text := w.sendAs(admin, start, in{"id": runner}); started == "" || onlyID(text) != started {
			t.Errorf("%s: startExecution: %s", when, text)
		}
	}
	again("at once", true)
	put("physics")
	again("with another tenant's environment", true)
	if text := w.sendAs(admin, `mutation($id: ID!) { releaseRunner(id: $id) { released } }`, in{"id": runner}); !strings.Contains(text, "true") {
		t.Error(text)
	}
	again("without the runner", false)
	if text := w.sendAs(admin, `mutation { deleteEnvironment(input: {id: "lab"}) { deleted } }`, nil); !strings.Contains(text, "true") {
		t.Error(text)
	}
	again("without the environment", false)
}

// onlyID returns the one id in a response without errors.
func onlyID(text string) string {
	_, after, ok := strings.Cut(text, `"id":"`)
	if id, _, _ := strings.Cut(after, `"`); ok && !strings.Contains(text, `"errors"`) {
		return id
	}
	return ""
}
