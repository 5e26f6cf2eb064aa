package access

import (
	"slices"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

func TestRolesAreInOrder(t *testing.T) {
	order := []Role{Observer, Client, Operator, Admin}
	if !slices.Equal(Roles(), order) {
		t.Error(Roles())
	}
	for i, r := range order {
		for j, least := range order {
			if r.Has(least) != (i >= j) {
				t.Errorf("%s has %s: %v", r, least, r.Has(least))
			}
		}
		if r.Has("") || r.Has("ROOT") || Role("").Has(r) || Role("ROOT").Has(r) || Role("observer").Has(r) {
			t.Errorf("%s and what is no role", r)
		}
		if parsed, err := ParseRole("role", string(r)); err != nil || parsed != r {
			t.Error(parsed, err)
		}
	}
	if Role("").Has("") {
		t.Error("no role has no role")
	}
	for _, text := range []string{"", "admin", "ROOT", "ADMIN "} {
		if _, err := ParseRole("role", text); runtime.CodeOf(err) != runtime.CodeInvalidInput {
			t.Errorf("%q: got %v, want INVALID_INPUT", text, err)
		}
	}
	Roles()[0] = Admin
	if Roles()[0] != Observer {
		t.Error("what Roles returned is the roles")
	}
}

var (
	physics   = runtime.TenantID("physics")
	chemistry = runtime.TenantID("chemistry")
)

func token(role Role, tenant runtime.TenantID) Principal {
	return Principal{Kind: KindToken, ID: "t", Role: role, Tenant: tenant}
}

func forAll(role Role) Principal {
	return Principal{Kind: KindToken, ID: "t", Role: role, AllTenants: true}
}

func grant(g Grant, tenant runtime.TenantID, all bool) Principal {
	return Principal{Kind: KindGrant, ID: "t", Tenant: tenant, AllTenants: all, Grant: &g}
}

func TestAllow(t *testing.T) {
	watch := grant(Grant{Execution: "x", Rights: []Right{Watch}}, physics, false)
	reads := grant(Grant{Runner: "r", Rights: []Right{FilesRead}}, physics, false)
	writes := grant(Grant{Runner: "r", Rights: []Right{FilesWrite, Stdin}}, physics, true)
	rightless := grant(Grant{Execution: "x"}, physics, false)
	const ok, unknown, forbidden = runtime.Code(""), runtime.CodeUnauthenticated, runtime.CodeForbidden
	for _, test := range []struct {
		who  Principal
		name string
		want map[Operation]runtime.Code
	}{
		{Principal{}, "nobody", map[Operation]runtime.Code{"version": unknown, "me": unknown, "createToken": unknown, "metrics": unknown, "nothing": forbidden}},
		{Principal{Role: Admin, AllTenants: true}, "no kind", map[Operation]runtime.Code{"version": unknown}},
		{token(Observer, physics), "an observer", map[Operation]runtime.Code{"runners": ok, "file": ok, "tenants": ok, "claimRunner": forbidden, "createGrant": forbidden, "putEnvironment": forbidden, "tokens": forbidden, "cluster": forbidden, "metrics": forbidden}},
		{token(Client, physics), "a client", map[Operation]runtime.Code{"runners": ok, "claimRunner": ok, "createGrant": ok, "putEnvironment": forbidden, "createToken": forbidden}},
		{token(Operator, physics), "an operator", map[Operation]runtime.Code{"run": ok, "deleteEnvironment": ok, "drainCluster": forbidden, "createToken": forbidden}},
		{token(Admin, physics), "an admin", map[Operation]runtime.Code{"createToken": ok, "revokeToken": ok, "auditLog": ok, "putTenant": forbidden, "cluster": forbidden, "nothing": forbidden}},
		{forAll(Observer), "an observer for all", map[Operation]runtime.Code{"cluster": ok, "metrics": ok, "drainCluster": forbidden, "claimRunner": forbidden}},
		{forAll(Operator), "an operator for all", map[Operation]runtime.Code{"drainCluster": ok, "putTenant": forbidden, "createToken": forbidden}},
		{forAll(Admin), "an admin for all", map[Operation]runtime.Code{"putTenant": ok, "deleteTenant": ok, "nothing": forbidden}},
		{Server(), "the server", map[Operation]runtime.Code{"putTenant": ok, "drainCluster": ok, "nothing": forbidden}},
		{Anonymous(), "anonymous", map[Operation]runtime.Code{"putTenant": ok, "run": ok, "nothing": forbidden}},
		{watch, "a grant to watch", map[Operation]runtime.Code{"execution": ok, "executionEvents": ok, "output": ok, "me": ok, "version": ok, "writeStdin": forbidden, "cancelExecution": forbidden, "executions": forbidden, "health": forbidden, "createGrant": forbidden, "tenants": forbidden, "file": forbidden}},
		{reads, "a grant to read", map[Operation]runtime.Code{"runner": ok, "execution": forbidden, "files": ok, "file": ok, "searchFiles": ok, "fileChanges": ok, "updateFiles": forbidden, "uploadFile": forbidden, "output": forbidden, "releaseRunner": forbidden}},
		{writes, "a grant to write", map[Operation]runtime.Code{"files": forbidden, "file": forbidden, "searchFiles": forbidden, "fileChanges": forbidden, "updateFiles": ok, "moveFile": ok, "uploadFile": ok, "writeStdin": ok, "startExecution": forbidden, "cluster": forbidden}},
		{rightless, "a grant without rights", map[Operation]runtime.Code{"version": forbidden, "execution": forbidden}},
	} {
		for op, want := range test.want {
			err := test.who.Allow(op)
			if (err == nil) != (want == ok) || err != nil && runtime.CodeOf(err) != want {
				t.Errorf("%s, %s: %v, want %q", test.name, op, err, want)
			}
			if err == nil && test.who.Kind == "" {
				t.Errorf("a caller without a token may do %s", op)
			}
		}
	}
}

// TestGrantsAreForObjects checks that every operation that grants may use names an object, or
// discloses none.
func TestGrantsAreForObjects(t *testing.T) {
	objects := []Operation{
		"version", "me", // which show none
		"runner", "files", "file", "searchFiles", "fileChanges", "updateFiles", "moveFile", "uploadFile", "startExecution", "renewRunner",
		"execution", "executionEvents", "output", "renewLease", "writeStdin", "resizeTerminal", "signalExecution", "cancelExecution",
		"batch", "batchEvents", "cancelBatch",
	}
	for _, op := range Operations() {
		rule, ok := RuleOf(op)
		if !ok || len(rule.Rights) > 0 != slices.Contains(objects, op) {
			t.Errorf("%s: %+v", op, rule)
		}
	}
}

func TestPrincipalsSeeTheirTenantsObjects(t *testing.T) {
	own, shared, foreign := runtime.Environment{ID: "a", Tenant: physics}, runtime.Environment{ID: "b", Tenant: chemistry, Shared: true}, runtime.Environment{ID: "c", Tenant: chemistry}
	runner := func(id runtime.RunnerID, env runtime.Environment, holder ...runtime.TenantID) runtime.Runner {
		r := runtime.Runner{ID: id, Environment: env}
		if len(holder) > 0 {
			r.Claim = runtime.Claim{Epoch: 1, Tenant: holder[0]}
		}
		return r
	}
	runners := map[string]runtime.Runner{
		"idle, own": runner("1", own), "idle, shared": runner("2", shared), "idle, foreign": runner("3", foreign),
		"own": runner("4", own, physics), "own of shared": runner("5", shared, physics), "foreign": runner("6", foreign, chemistry), "handed over": runner("7", own, chemistry), "without id": runner("", own, physics),
	}
	x := map[string]runtime.Execution{"own": {ID: "x", RunnerID: "4", Tenant: physics}, "own beside it": {ID: "y", RunnerID: "5", Tenant: physics}, "foreign": {ID: "z", RunnerID: "6", Tenant: chemistry}, "without ids": {Tenant: physics}}
	batches := map[string]runtime.Batch{"own": {ID: "b", RunnerID: "4", Tenant: physics}, "own, fresh": {ID: "c", Tenant: physics}, "foreign": {ID: "d", RunnerID: "6", Tenant: chemistry}}
	all := []string{"all"}
	ofExecution := grant(Grant{Execution: "x", Rights: anyRight}, physics, false)
	ofRunner := grant(Grant{Runner: "4", Rights: anyRight}, physics, false)
	for _, test := range []struct {
		name                                                string
		who                                                 Principal
		tenants, environments, runners, executions, batches []string
	}{
		{"nobody", Principal{}, nil, nil, nil, nil, nil},
		{"nobody of a tenant", Principal{Tenant: physics, AllTenants: true, Role: Admin}, nil, nil, nil, nil, nil},
		{"a token", token(Admin, physics), []string{"physics"}, []string{"a", "b"}, []string{"idle, own", "own", "own of shared", "without id"}, []string{"own", "own beside it", "without ids"}, []string{"own", "own, fresh"}},
		{"a token of the owner", token(Observer, chemistry), []string{"chemistry"}, []string{"b", "c"}, []string{"idle, shared", "idle, foreign", "foreign", "handed over"}, []string{"foreign"}, []string{"foreign"}},
		{"a token of the default tenant", token(Admin, runtime.DefaultTenant), nil, []string{"b"}, nil, nil, nil},
		{"a token for all", forAll(Observer), all, all, all, all, all},
		{"the server", Server(), all, all, all, all, all},
		{"a grant for an execution", ofExecution, nil, nil, nil, []string{"own"}, nil},
		{"a grant for a runner", ofRunner, nil, nil, []string{"own"}, []string{"own"}, []string{"own"}},
		{"a grant of another tenant's token", grant(Grant{Runner: "4", Rights: anyRight}, chemistry, false), nil, nil, nil, nil, nil},
		{"a grant of a token for all", grant(Grant{Runner: "6", Rights: anyRight}, "", true), nil, nil, []string{"foreign"}, []string{"foreign"}, []string{"foreign"}},
		{"a grant for what changed hands", grant(Grant{Runner: "7", Rights: anyRight}, physics, false), nil, nil, nil, nil, nil},
		{"a grant for nothing", grant(Grant{Rights: anyRight}, physics, true), nil, nil, nil, nil, nil},
	} {
		check := func(kind string, want []string, name string, sees bool) {
			t.Helper()
			if expected := slices.Equal(want, all) || slices.Contains(want, name); sees != expected {
				t.Errorf("%s sees the %s %s: %v, want %v", test.name, kind, name, sees, expected)
			}
		}
		for _, id := range []runtime.TenantID{physics, chemistry} {
			check("tenant", test.tenants, string(id), test.who.SeesTenant(id))
		}
		for _, env := range []runtime.Environment{own, shared, foreign} {
			check("environment", test.environments, string(env.ID), test.who.SeesEnvironment(env))
		}
		for name, r := range runners {
			check("runner", test.runners, name, test.who.SeesRunner(r))
		}
		for name, of := range x {
			check("execution", test.executions, name, test.who.SeesExecution(of))
		}
		for name, b := range batches {
			check("batch", test.batches, name, test.who.SeesBatch(b))
		}
	}
}

func TestActsForAndScope(t *testing.T) {
	one, all := token(Client, physics), forAll(Admin)
	if one.ActsFor(chemistry) != physics || all.ActsFor(chemistry) != chemistry {
		t.Error(one.ActsFor(chemistry), all.ActsFor(chemistry))
	}
	if tenant := one.Only(); tenant == nil || *tenant != physics {
		t.Error(tenant)
	}
	if tenant := all.Only(); tenant != nil {
		t.Error("all are narrowed")
	}
	if tenant := (Principal{}).Only(); tenant == nil {
		t.Error("lists of a caller without a token show all")
	}
}

func TestPrincipalsAreInContexts(t *testing.T) {
	ctx := t.Context()
	if p := FromContext(ctx); p != (Principal{}) {
		t.Errorf("%+v acts", p)
	}
	outer := With(ctx, Server())
	inner := With(outer, token(Observer, physics))
	if FromContext(outer).Kind != KindServer || FromContext(inner).Role != Observer {
		t.Error(FromContext(outer), FromContext(inner))
	}
}

func TestTokensExpireAndAreRevoked(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		token Token
		ended bool
	}{
		"lasting": {Token{}, false}, "later": {Token{ExpiresAt: now.Add(1)}, false}, "now": {Token{ExpiresAt: now}, true},
		"revoked": {Token{RevokedAt: now.Add(-1)}, true}, "revoked before its time": {Token{RevokedAt: now, ExpiresAt: now.Add(time.Hour)}, true},
	} {
		if test.token.Ended(now) != test.ended {
			t.Errorf("%s: %v", name, !test.ended)
		}
	}
	made := Token{ID: "i", Kind: KindSession, Name: "n", Tenant: physics, AllTenants: true, Role: Client, Hash: []byte{1}}
	if p := made.Principal(); p != (Principal{Kind: KindSession, ID: "i", Name: "n", Tenant: physics, AllTenants: true, Role: Client}) {
		t.Errorf("%+v", p)
	}
}

// TestGrantsHaveTheirOwnKeyScope checks that grants have idempotency keys of their own.
func TestGrantsHaveTheirOwnKeyScope(t *testing.T) {
	maker := Principal{Tenant: "a"}
	holder := maker
	holder.Grant = &Grant{ID: "g", Runner: "r"}
	renewed := maker
	renewed.Grant = &Grant{ID: "h", Runner: "r"}
	if maker.Keys() != "a" || renewed.Keys() != holder.Keys() || holder.Keys() == maker.Keys() || holder.Keys() == (Principal{AllTenants: true}).Keys() {
		t.Errorf("%q, %q", maker.Keys(), holder.Keys())
	}
}
