package graph

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/test/clustertest"
)

// tenanted is a bed with a tenant, and a client's token for it.
func tenanted(t *testing.T, quotas runtime.Quotas) (b bed, client http.Header) {
	t.Helper()
	fake := clustertest.NewFake()
	b = newBedWith(t, fake, fake, bedOptions{Token: testToken})
	if _, _, err := b.registry.PutTenant(t.Context(), "physics", nil, &quotas); err != nil {
		t.Fatal(err)
	}
	_, secret, err := b.registry.CreateToken(t.Context(), access.Server(), identity.NewToken{Kind: access.KindToken, Name: "client", Role: access.Client, Tenant: "physics"})
	if err != nil {
		t.Fatal(err)
	}
	b.sendAs(testToken, `mutation { putEnvironment(input: {id: "a", tenant: "physics", poolSize: 3}) { created } }`)
	return b, http.Header{"Authorization": {"Bearer " + secret}}
}

// sendAs sends a query with a token.
func (b bed) sendAs(token, query string) answer {
	b.t.Helper()
	body, _ := json.Marshal(in{"query": query})
	return ask(b.t, "POST", b.url, string(body), http.Header{"Authorization": {"Bearer " + token}})
}

func asked(t *testing.T, b bed, header http.Header, query string) answer {
	t.Helper()
	body, _ := json.Marshal(in{"query": query})
	return ask(t, "POST", b.url, string(body), header)
}

const claimA = `mutation { claimRunner(input: {environmentId: "a", waitFor: 60}) { runner { id } } }`

// A hundred concurrent clients get all runners of the quota, and never more.
func TestConcurrentClaimsNeverExceedTheQuota(t *testing.T) {
	const most = 7
	b, client := tenanted(t, runtime.Quotas{Runners: ptr(most)})
	var got, refused atomic.Int64
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			a := asked(t, b, client, strings.Replace(claimA, ", waitFor: 60", "", 1))
			switch a.code() {
			case nil:
				got.Add(1)
			case "QUOTA_EXCEEDED":
				refused.Add(1)
				e := a.Errors[0].Extensions // other claims may not have their runners yet
				used, _ := e["used"].(float64)
				pending, _ := e["pending"].(float64)
				if e["quota"] != "runners" || e["limit"] != float64(most) || used+pending != most {
					t.Errorf("%v", e)
				}
			case "NO_RUNNER_AVAILABLE": // three are idle, while others are being made
			default:
				t.Errorf("%+v", a.Errors)
			}
		})
	}
	group.Wait()
	for got.Load() < most { // the rest, while the pool fills
		if a := asked(t, b, client, claimA); a.code() != nil {
			t.Fatalf("%d of %d: %+v", got.Load(), most, a.Errors)
		}
		got.Add(1)
	}
	if got.Load() != most {
		t.Errorf("%d runners of %d", got.Load(), most)
	}
	if a := asked(t, b, client, strings.Replace(claimA, ", waitFor: 60", "", 1)); a.code() != "QUOTA_EXCEEDED" || a.Errors[0].Extensions["used"] != float64(most) {
		t.Errorf("one more: %+v", a)
	}
	var use struct {
		Tenants []struct{ Use struct{ Runners int } }
	}
	data, _ := json.Marshal(asked(t, b, client, `{ tenants { use { runners } } }`).Data)
	if err := json.Unmarshal(data, &use); err != nil || len(use.Tenants) != 1 || use.Tenants[0].Use.Runners != most {
		t.Errorf("%s, %v", data, err)
	}
}

// A claim with waitFor waits until another runner of its tenant ends.
func TestClaimsWaitForTheirQuota(t *testing.T) {
	b, client := tenanted(t, runtime.Quotas{Runners: ptr(1)})
	first := asked(t, b, client, claimA)
	if first.code() != nil {
		t.Fatalf("%+v", first.Errors)
	}
	id := first.Data["claimRunner"].(in)["runner"].(in)["id"].(string)
	second := make(chan answer)
	go func() { second <- asked(t, b, client, claimA) }()
	for use := 0.0; use == 0; { // until it waits
		tenant := asked(t, b, client, `{ tenants { use { waiting } } }`).Data["tenants"].([]any)[0].(in)
		use = tenant["use"].(in)["waiting"].(float64)
	}
	if a := asked(t, b, client, `mutation { releaseRunner(id: "`+id+`") { released } }`); a.code() != nil {
		t.Fatalf("%+v", a.Errors)
	}
	if a := <-second; a.code() != nil {
		t.Errorf("%+v", a.Errors)
	}
}

// The refusal of a claim beyond claimsPerMinute has the time until a retry.
func TestClaimRateQuotaHasRetryAfter(t *testing.T) {
	b, client := tenanted(t, runtime.Quotas{ClaimsPerMinute: ptr(2)})
	for range 2 {
		if a := asked(t, b, client, claimA); a.code() != nil {
			t.Fatalf("%+v", a.Errors)
		}
	}
	a := asked(t, b, client, claimA)
	after, _ := a.Errors[0].Extensions["retryAfter"].(float64)
	if a.code() != "QUOTA_EXCEEDED" || after < 1 || after > 60 || a.Header.Get("Retry-After") == "" {
		t.Errorf("%+v, Retry-After %q", a.Errors, a.Header.Get("Retry-After"))
	}
}

func TestSubscriptionsHaveAQuota(t *testing.T) {
	b, client := tenanted(t, runtime.Quotas{Subscriptions: ptr(0)})
	header := client.Clone()
	header.Set("Accept", "text/event-stream")
	request, _ := http.NewRequestWithContext(t.Context(), "POST", b.url+"/graphql", strings.NewReader(`{"query":"subscription { poolStatus { idle } }"}`))
	request.Header = header
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusTooManyRequests {
		t.Errorf("status %d, want %d", response.StatusCode, http.StatusTooManyRequests)
	}
}

// A claim that doesn't wait gets a ticket with its position, and later its runner.
func TestClaimsCanHaveTickets(t *testing.T) {
	fake := clustertest.NewFake()
	b := newBedWith(t, fake, fake, bedOptions{})
	ready := make(chan struct{})
	fake.OnStart(func(runtime.RunnerID) error { <-ready; return nil })
	b.environment("a", 0)
	var out struct {
		ClaimRunner struct {
			Runner *struct{ ID string }
			Ticket struct{ ID, State string }
		}
	}
	b.send(`mutation { claimRunner(input: {environmentId: "a", wait: TICKET}) { runner { id } ticket { id state } } }`, nil, &out)
	if out.ClaimRunner.Runner != nil || out.ClaimRunner.Ticket.State != "WAITING" {
		t.Fatalf("%+v", out)
	}
	events := b.watch(`subscription($id: ID!) { ticketEvents(id: $id) { state position runner { id } } }`, in{"id": out.ClaimRunner.Ticket.ID})
	type event struct {
		TicketEvents struct {
			State    string
			Position *int
			Runner   *struct{ ID string }
		}
	}
	var now event
	for now.TicketEvents.Position == nil { // it isn't known immediately
		now = event{}
		events.next(&now)
	}
	if *now.TicketEvents.Position != 1 || now.TicketEvents.State != "WAITING" {
		t.Errorf("%+v", now)
	}
	close(ready)
	for now.TicketEvents.State == "WAITING" {
		now = event{}
		events.next(&now)
	}
	if now.TicketEvents.State != "CLAIMED" || now.TicketEvents.Runner == nil {
		t.Errorf("%+v", now)
	}
}

// A claim that waits for its tenant's quota gets no runner of another tenant's environment, which
// was created later with the same id.
func TestWaitingClaimsAreOfTheirTenant(t *testing.T) {
	b, client := tenanted(t, runtime.Quotas{Runners: ptr(1)})
	first := asked(t, b, client, claimA).Data["claimRunner"].(in)["runner"].(in)["id"].(string)
	second := make(chan answer)
	go func() { second <- asked(t, b, client, claimA) }()
	for use := 0.0; use == 0; { // until it waits
		tenant := asked(t, b, client, `{ tenants { use { waiting } } }`).Data["tenants"].([]any)[0].(in)
		use = tenant["use"].(in)["waiting"].(float64)
	}
	b.sendAs(testToken, `mutation { deleteEnvironment(input: {id: "a"}) { deleted } }`)
	b.sendAs(testToken, `mutation { putTenant(input: {id: "chemistry"}) { created } }`)
	if a := b.sendAs(testToken, `mutation { putEnvironment(input: {id: "a", tenant: "chemistry", poolSize: 2}) { created } }`); a.code() != nil {
		t.Fatalf("%+v", a.Errors)
	}
	if a := asked(t, b, client, `mutation { releaseRunner(id: "`+first+`") { released } }`); a.code() != nil {
		t.Fatalf("%+v", a.Errors)
	}
	if a := <-second; a.code() != "ENVIRONMENT_NOT_FOUND" {
		t.Errorf("%+v", a)
	}
}

// A batch uses one execution of the quota, from its beginning to its end.
func TestBatchesUseOneExecutionOfTheQuota(t *testing.T) {
	b, client := tenanted(t, runtime.Quotas{Executions: ptr(1)})
	runner := asked(t, b, client, claimA).Data["claimRunner"].(in)["runner"].(in)["id"].(string)
	const cases = `cases: [{stdin: "1"}, {stdin: "2"}, {stdin: "3"}]`
	started := asked(t, b, client, `mutation { startExecution(input: {runnerId: "`+runner+`", command: ["cat"], build: {command: ["true"]}, `+cases+`}) { batch { id } } }`)
	if started.code() != nil {
		t.Fatalf("%+v", started.Errors)
	}
	batch := started.Data["startExecution"].(in)["batch"].(in)["id"].(string)
	for state := "RUNNING"; state != "FINISHED"; {
		now := asked(t, b, client, `{ batch(id: "`+batch+`") { state outcome } }`).Data["batch"].(in)
		if state = now["state"].(string); state == "FINISHED" && now["outcome"] != "COMPLETED" {
			t.Errorf("%v", now)
		}
	}
	waits := `mutation { startExecution(input: {runnerId: "` + runner + `", command: ["cat"], stdin: true}) { execution { id } } }`
	x := asked(t, b, client, waits)
	if x.code() != nil {
		t.Fatalf("the batch's is given back: %+v", x.Errors)
	}
	if a := asked(t, b, client, waits); a.code() != "QUOTA_EXCEEDED" {
		t.Errorf("a second one: %+v", a)
	}
	if a := asked(t, b, client, `mutation { startExecution(input: {runnerId: "`+runner+`", command: ["cat"], `+cases+`}) { batch { id } } }`); a.code() != "QUOTA_EXCEEDED" {
		t.Errorf("a batch: %+v", a)
	}
	// A run that can't start claims no runner.
	if a := asked(t, b, client, `mutation { run(input: {environmentId: "a", command: ["true"], waitFor: 60}) { execution { id } } }`); a.code() != "QUOTA_EXCEEDED" {
		t.Errorf("run: %+v", a)
	}
	use := asked(t, b, client, `{ tenants { use { claimsPerMinute executions } } }`).Data["tenants"].([]any)[0].(in)["use"].(in)
	if use["claimsPerMinute"] != 1.0 || use["executions"] != 1.0 {
		t.Errorf("%v", use)
	}
}

// The lists of waiting claims and of the audit log have the tenants that the caller may see, or one
// of them if the caller selects it.
func TestListsFilterByTenant(t *testing.T) {
	b, client := tenanted(t, runtime.Quotas{Runners: ptr(0)})
	ctx, leave := context.WithCancel(t.Context())
	body, _ := json.Marshal(in{"query": strings.Replace(claimA, "waitFor: 60", "waitFor: 600", 1)})
	request, _ := http.NewRequestWithContext(ctx, "POST", b.url+"/graphql", bytes.NewReader(body))
	request.Header = client.Clone()
	request.Header.Set("Content-Type", "application/json")
	ended := make(chan error)
	go func() {
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			err = response.Body.Close()
		}
		ended <- err
	}()
	_, manager, err := b.registry.CreateToken(t.Context(), access.Server(), identity.NewToken{Kind: access.KindToken, Name: "manager", Role: access.Admin, Tenant: "physics"})
	if err != nil {
		t.Fatal(err)
	}
	_, other, err := b.registry.CreateToken(t.Context(), access.Server(), identity.NewToken{Kind: access.KindToken, Name: "other", Role: access.Admin})
	if err != nil {
		t.Fatal(err)
	}
	waiting := func(token, arguments string) (rows []any, total float64) {
		t.Helper()
		a := b.sendAs(token, `{ waitingClaims`+arguments+` { nodes { tenant environmentId position } totalCount } }`)
		if a.code() != nil {
			t.Fatalf("%+v", a.Errors)
		}
		page := a.Data["waitingClaims"].(in)
		return page["nodes"].([]any), page["totalCount"].(float64)
	}
	for { // until it waits
		if _, total := waiting(testToken, ""); total == 1 {
			break
		}
	}
	b.sendAs(manager, `mutation { cancelTicket(id: "none") { ticket { id } } }`)
	b.sendAs(other, `mutation { cancelTicket(id: "none") { ticket { id } } }`)
	for _, test := range []struct {
		token, arguments string
		waits            int
		did              []string
	}{
		{testToken, "", 1, []string{"manager", "other"}},
		{testToken, `(tenant: "physics")`, 1, []string{"manager"}},
		{testToken, `(tenant: "default")`, 0, []string{"other"}},
		{testToken, `(tenant: "nobodys")`, 0, nil},
		{manager, "", 1, []string{"manager"}},
		{manager, `(tenant: "physics")`, 1, []string{"manager"}},
		{manager, `(tenant: "default")`, 0, nil},
		{other, `(tenant: "physics")`, 0, nil},
		{other, "", 0, []string{"other"}},
	} {
		rows, total := waiting(test.token, test.arguments)
		if len(rows) != test.waits || total != float64(test.waits) {
			t.Errorf("%+v: %v of %v", test, rows, total)
		}
		if test.waits == 1 && !reflect.DeepEqual(rows[0], in{"tenant": "physics", "environmentId": "a", "position": nil}) {
			t.Errorf("%+v: %v", test, rows)
		}
		var did []string
		log := b.sendAs(test.token, `{ auditLog(action: "cancelTicket"`+strings.Replace(strings.Trim(test.arguments, "()"), "tenant", ", tenant", 1)+`) { nodes { actorName } } }`)
		for _, node := range log.Data["auditLog"].(in)["nodes"].([]any) {
			did = append(did, node.(in)["actorName"].(string))
		}
		if !slices.Equal(did, test.did) {
			t.Errorf("%+v: %q did it", test, did)
		}
	}
	for _, list := range []string{"waitingClaims", "auditLog"} {
		if a := b.sendAs(testToken, `{ `+list+`(tenant: "No Name") { nodes { id } } }`); a.code() != "INVALID_INPUT" || a.Errors[0].Extensions["field"] != "tenant" {
			t.Errorf("%s: %+v", list, a.Errors)
		}
	}
	leave()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the claim was answered: got %v, want %v", err, context.Canceled)
	}
	for { // until it no longer waits
		if _, total := waiting(testToken, ""); total == 0 {
			break
		}
	}
}
