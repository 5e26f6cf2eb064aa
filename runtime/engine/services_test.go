package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/store"
)

// unchecked are the methods that don't check the caller. Each has an object instead of an id: the object
// comes from a call that checked.
var unchecked = []string{
	"Environments.PoolStatus", "Environments.StartDurations", "Environments.PoolHistory", "Environments.ClaimStats",
	"Runners.Usage", "Executions.Usage", "Batches.Cases", "Batches.Build", "Callers.Usage",
}

// services returns the methods of all services of an engine that has nothing else, so that anything
// later than the check panics.
func services(log *audit.Log) map[string]reflect.Value {
	e := &Engine{auth: audit.NewAuthorizer(log)}
	e.serve()
	methods := map[string]reflect.Value{}
	of := reflect.ValueOf(&e.Services).Elem()
	for i := range of.NumField() {
		field := of.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		for j := range of.Field(i).NumMethod() {
			methods[field.Name+"."+of.Field(i).Type().Method(j).Name] = of.Field(i).Method(j)
		}
	}
	return methods
}

// TestServicesHoldNothingElse checks that an API, which has only the Services, reaches nothing but methods
// that check their caller.
func TestServicesHoldNothingElse(t *testing.T) {
	of := reflect.TypeFor[*Services]()
	for i := range of.NumMethod() {
		if name := of.Method(i).Name; name != "Go" && name != "CountSubscription" {
			t.Errorf("Services.%s checks no caller", name)
		}
	}
	for name, method := range services(nil) {
		for i := range method.Type().NumOut() {
			out := method.Type().Out(i)
			for out.Kind() == reflect.Pointer || out.Kind() == reflect.Slice || out.Kind() == reflect.Chan {
				out = out.Elem()
			}
			if out.PkgPath() == "github.com/rockpool/rockpool/runtime/pool" {
				t.Errorf("%s returns a %s, whose methods check no caller", name, out)
			}
		}
	}
}

// TestEveryMethodChecksItsCaller calls all methods of all services.
func TestEveryMethodChecksItsCaller(t *testing.T) {
	all := services(nil)
	if len(all) < 60 {
		t.Fatalf("there are only %d methods", len(all))
	}
	for name, method := range all {
		if slices.Contains(unchecked, name) {
			continue
		}
		for who, ctx := range map[string]context.Context{
			"nobody":                   t.Context(),
			"a grant without rights":   access.With(t.Context(), access.Principal{Kind: access.KindGrant, Grant: &access.Grant{Execution: "x"}}),
			"a token without any role": access.With(t.Context(), access.Principal{Kind: access.KindToken, AllTenants: true}),
		} {
			want := runtime.CodeForbidden
			if who == "nobody" {
				want = runtime.CodeUnauthenticated
			}
			if err := call(ctx, method, name); runtime.CodeOf(err) != want {
				t.Errorf("%s by %s: %v, want %s", name, who, err, want)
			}
		}
	}
	for _, name := range unchecked {
		method, ok := all[name]
		if !ok {
			t.Errorf("there is no method %s", name)
			continue
		}
		objects := 0
		for i := range method.Type().NumIn() {
			if in := method.Type().In(i); in.Kind() == reflect.Struct && in.PkgPath() == "github.com/rockpool/rockpool/runtime" {
				objects++
			}
		}
		if objects != 1 {
			t.Errorf("%s has no object", name)
		}
	}
}

// call calls a method with zero values, and returns its error, or that it panicked.
func call(ctx context.Context, method reflect.Value, name string) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("it continued: %v", panicked)
		}
	}()
	in := []reflect.Value{reflect.ValueOf(ctx)}
	for i := 1; i < method.Type().NumIn(); i++ {
		in = append(in, reflect.Zero(method.Type().In(i)))
	}
	if len(in) > 1 && in[1].Type() == reflect.TypeFor[access.Operation]() {
		in[1] = reflect.ValueOf(access.Operation("version"))
	}
	out := method.Call(in)
	err, _ = out[len(out)-1].Interface().(error)
	return err
}

// actions is an audit log's store that keeps the recorded actions.
type actions struct {
	audit.Store
	mu   sync.Mutex
	done []access.Operation
}

func (a *actions) AppendAudit(_ context.Context, rows []store.AuditRow) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range rows {
		a.done = append(a.done, access.Operation(r.Action))
	}
	return nil
}

func (a *actions) take() []access.Operation {
	a.mu.Lock()
	defer a.mu.Unlock()
	done := a.done
	a.done = nil
	return done
}

func newLog(t *testing.T, s audit.Store) *audit.Log {
	t.Helper()
	log, err := audit.New(audit.Config{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// TestFullAuditLogRefusesRecordedOperations checks that they are refused before they act, and that
// nothing else is refused.
func TestFullAuditLogRefusesRecordedOperations(t *testing.T) {
	stored := &actions{}
	log, full := newLog(t, stored), newLog(t, nil)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- log.Run(ctx) }()
	for full.Room("a") == nil {
		full.Append(audit.Entry{Tenant: "a", Action: "a"})
	}
	nobody := access.With(t.Context(), access.Principal{Kind: access.KindToken, ID: "1", Tenant: "a"}) // no role: all is FORBIDDEN
	recording, refusing := services(log), services(full)
	seen := map[access.Operation]bool{}
	for name, method := range recording {
		if slices.Contains(unchecked, name) {
			continue
		}
		if err := call(nobody, method, name); runtime.CodeOf(err) != runtime.CodeForbidden {
			t.Errorf("%s: got %v, want FORBIDDEN", name, err)
		}
		if err := log.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		done := stored.take()
		for _, op := range done {
			seen[op] = true
		}
		if refuses := len(done) > 0 && name != "Callers.RevokeToken"; errors.Is(call(nobody, refusing[name], name), audit.ErrFull) != refuses {
			t.Errorf("%s makes the entries %v; with a full log refuses=%v is expected", name, done, refuses)
		}
	}
	delete(seen, "revokeToken") // which always may end a token
	for _, op := range access.Operations() {
		_, err := audit.NewAuthorizer(full).Allow(nobody, op)
		if refuses := errors.Is(err, audit.ErrFull); refuses != seen[op] {
			t.Errorf("%s makes an entry: %v; with a full log it is refused: %v", op, seen[op], refuses)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
