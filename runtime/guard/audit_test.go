package guard

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/store"
)

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
	recording, refusing := reflect.ValueOf(New(nil, nil, log)), reflect.ValueOf(New(nil, nil, full))
	seen := map[access.Operation]bool{}
	for i := range recording.NumMethod() {
		name := recording.Type().Method(i).Name
		if slices.Contains(unasked, name) {
			continue
		}
		if err := call(nobody, recording.Method(i), name); runtime.CodeOf(err) != runtime.CodeForbidden {
			t.Errorf("%s: %v", name, err)
		}
		if err := log.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		done := stored.take()
		for _, op := range done {
			seen[op] = true
		}
		if refuses := len(done) > 0 && name != "RevokeToken"; errors.Is(call(nobody, refusing.Method(i), name), audit.ErrFull) != refuses {
			t.Errorf("%s makes the entries %v; with a full log refuses=%v is expected", name, done, refuses)
		}
	}
	delete(seen, "revokeToken") // which always may end a token
	if !maps.Equal(seen, recorded) {
		t.Errorf("%v make entries instead of %v", slices.Sorted(maps.Keys(seen)), slices.Sorted(maps.Keys(recorded)))
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestRecordedFailuresOfACallerAreBounded checks each error code. Each entry is about an operation
// that changed nothing.
func TestRecordedFailuresOfACallerAreBounded(t *testing.T) {
	for _, code := range []runtime.Code{runtime.CodeForbidden, runtime.CodeInvalidInput, runtime.CodeQuotaExceeded, runtime.CodeRunnerGone} {
		stored := &actions{}
		log := newLog(t, stored)
		g := New(nil, nil, log)
		client := access.With(t.Context(), access.Principal{Kind: access.KindToken, ID: "1", Tenant: "a"})
		for range 1000 {
			record(client, g, "releaseRunner", ofRunner, "nonesuch", "a", runtime.Errorf(code, "no"))
		}
		record(client, g, "releaseRunner", ofRunner, "one", "a", nil)
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := log.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if n := len(stored.take()); n < 2 || n > 200 {
			t.Errorf("%s: %d entries", code, n)
		}
	}
}

// TestGrantsHaveTheirOwnKeyScope checks that grants have idempotency keys of their own.
func TestGrantsHaveTheirOwnKeyScope(t *testing.T) {
	maker := access.Principal{Tenant: "a"}
	holder := maker
	holder.Grant = &access.Grant{ID: "g", Runner: "r"}
	renewed := maker
	renewed.Grant = &access.Grant{ID: "h", Runner: "r"}
	if maker.Keys() != "a" || renewed.Keys() != holder.Keys() || holder.Keys() == maker.Keys() || holder.Keys() == (access.Principal{AllTenants: true}).Keys() {
		t.Errorf("%q, %q", maker.Keys(), holder.Keys())
	}
}
