package audit

import (
	"context"
	"errors"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

func client(t *testing.T) context.Context {
	return access.With(t.Context(), access.Principal{Kind: access.KindToken, ID: "1", Tenant: "a", Role: access.Client})
}

// TestRecordedFailuresOfACallerAreBounded checks each error code. Each entry is about an operation
// that changed nothing.
func TestRecordedFailuresOfACallerAreBounded(t *testing.T) {
	for _, code := range []runtime.Code{runtime.CodeForbidden, runtime.CodeInvalidInput, runtime.CodeQuotaExceeded, runtime.CodeRunnerGone} {
		stored := &memory{}
		log := newLog(t, Config{Store: stored})
		a := NewAuthorizer(log)
		for range 1000 {
			a.Record(client(t), "releaseRunner", OfRunner, "nonesuch", "a", runtime.Errorf(code, "no"))
		}
		a.Record(client(t), "releaseRunner", OfRunner, "one", "a", nil)
		if err := start(t, log)(); err != nil {
			t.Fatal(err)
		}
		if n := len(stored.rows); n < 2 || n > 200 {
			t.Errorf("%s: %d entries", code, n)
		}
	}
}

// TestDoAuthorisesActsAndRecords checks what an operation does, and what is recorded about it.
func TestDoAuthorisesActsAndRecords(t *testing.T) {
	missing := runtime.Errorf(runtime.CodeRunnerGone, "it is gone")
	object := func(tenant runtime.TenantID, sees bool) Object {
		return Object{Kind: OfRunner, ID: "r", Find: func(access.Principal) (runtime.TenantID, error) { return Seen(tenant, sees, missing) }}
	}
	all := access.With(t.Context(), access.Principal{Kind: access.KindToken, ID: "2", AllTenants: true, Role: access.Client})
	reader := access.With(t.Context(), access.Principal{Kind: access.KindToken, ID: "3", AllTenants: true, Role: access.Observer})
	for name, test := range map[string]struct {
		ctx    context.Context
		op     access.Operation
		of     Object
		acts   bool
		tenant runtime.TenantID // of the entry; "" means there is none
		failed bool
	}{
		"a change: recorded":                            {client(t), "moveFile", object("a", true), true, "a", false},
		"a change by a caller of all tenants: recorded": {all, "moveFile", object("b", true), true, "b", false},
		"a read: not recorded":                          {client(t), "files", object("a", true), true, "", false},
		"an invisible object: refused":                  {client(t), "moveFile", object("b", false), false, "a", true},
		"a caller without the right: refused":           {reader, "moveFile", object("b", true), false, "b", true},
		"the server's own change: not recorded":         {access.With(t.Context(), access.Server()), "moveFile", object("a", true), true, "", false},
		"an operation without a rule: refused":          {all, "unknown", object("a", true), false, "", true},
	} {
		stored := &memory{}
		log := newLog(t, Config{Store: stored})
		acted := false
		_, err := Do(test.ctx, NewAuthorizer(log), test.op, test.of, func() (int, error) { acted = true; return 0, nil })
		if acted != test.acts || (err == nil) != test.acts {
			t.Errorf("%s: acted=%v, %v", name, acted, err)
		}
		if err := start(t, log)(); err != nil {
			t.Fatal(err)
		}
		rows := stored.rows
		switch {
		case test.tenant == "" && len(rows) > 0, test.tenant != "" && len(rows) != 1:
			t.Errorf("%s: %d entries", name, len(rows))
		case test.tenant != "" && (rows[0].Tenant != test.tenant || rows[0].Failed != test.failed || rows[0].Object != "r"):
			t.Errorf("%s: %+v", name, rows[0])
		}
	}
}

// TestPanicsAreRecorded checks that an operation that panicked after it may have changed something has an
// entry.
func TestPanicsAreRecorded(t *testing.T) {
	object := Object{Kind: OfRunner, ID: "r", Find: func(access.Principal) (runtime.TenantID, error) { return "a", nil }}
	for name, operate := range map[string]func(a *Authorizer){
		"on an object": func(a *Authorizer) { _, _ = Do(client(t), a, "moveFile", object, func() (int, error) { panic("act") }) },
		"making": func(a *Authorizer) {
			_ = a.Make(client(t), "claimRunner", NewMade(OfRunner, "r"), func(access.Principal) error { panic("act") })
		},
		"making, no success": func(a *Authorizer) {
			_ = a.Make(client(t), "claimRunner", &Made{Kind: OfRunner, ID: "r", Omit: true}, func(access.Principal) error { panic("act") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			stored := &memory{}
			log := newLog(t, Config{Store: stored})
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the panic is swallowed")
					}
				}()
				operate(NewAuthorizer(log))
			}()
			if err := start(t, log)(); err != nil {
				t.Fatal(err)
			}
			if len(stored.rows) != 1 || !stored.rows[0].Failed || stored.rows[0].Object != "r" {
				t.Errorf("got %+v, want one entry of a failure", stored.rows)
			}
		})
	}
}

// TestFullLogReadsNoObject checks that a refused call costs no read of its object while the log is full.
func TestFullLogReadsNoObject(t *testing.T) {
	log := newLog(t, Config{})
	for log.Room(WholeServer) == nil {
		log.Append(Entry{Tenant: WholeServer, Action: "a"})
	}
	all := access.With(t.Context(), access.Principal{Kind: access.KindToken, ID: "2", AllTenants: true, Role: access.Client})
	object := Object{Kind: OfRunner, ID: "r", Find: func(access.Principal) (runtime.TenantID, error) { t.Error("the object is read"); return "a", nil }}
	if _, err := Do(all, NewAuthorizer(log), "moveFile", object, func() (int, error) { return 0, nil }); !errors.Is(err, ErrFull) {
		t.Errorf("%v, want %v", err, ErrFull)
	}
}
