package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/server/signin"
)

// gone is a store that can no longer store audit entries.
type gone struct{ audit.Store }

func (gone) AppendAudit(context.Context, []store.AuditRow) error { return errors.New("it is away") }

// TestUnstoredAuditEntriesAreLogged when the server stops, each with the JSON of the database.
func TestUnstoredAuditEntriesAreLogged(t *testing.T) {
	var text bytes.Buffer
	s := &Server{logger: zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&text), zap.InfoLevel))}
	var err error
	s.audit, err = audit.New(audit.Config{Store: gone{}, Unstored: s.logUnstored})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		s.audit.Append(audit.Entry{Action: "a", ObjectID: fmt.Sprint("id", i)})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.audit.Run(ctx); err == nil || unlessStopping(err) == nil || !strings.Contains(err.Error(), "3 entries") {
		t.Errorf("got %v, want the 3 entries that were not stored", err)
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(lines) != 4 || !strings.Contains(lines[0], `"entries":3`) {
		t.Fatal(text.String())
	}
	for i, line := range lines[1:] {
		var of struct {
			Entry struct {
				ID, Action string
				Object     struct{ ID string }
			}
		}
		if err := json.Unmarshal([]byte(line), &of); err != nil || of.Entry.Action != "a" || of.Entry.Object.ID != fmt.Sprint("id", i) || of.Entry.ID == "" {
			t.Errorf("%s: %+v, %v", line, of, err)
		}
	}
}

// TestSignInsNeedTheAuditLog, but a session can always end.
func TestSignInsNeedTheAuditLog(t *testing.T) {
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	registry := identity.New(identity.Config{Store: db, Key: make([]byte, 32), Logger: zap.NewNop()})
	log, err := audit.New(audit.Config{Store: db})
	if err != nil {
		t.Fatal(err)
	}
	s := sessions{registry, log, true}
	who := signin.Identity{Subject: "s", Name: "Ada", Role: access.Admin, Expires: time.Now().Add(time.Hour)}
	secret, err := s.Begin(t.Context(), who)
	if err != nil {
		t.Fatal(err)
	}
	for log.Room(audit.WholeServer) == nil {
		log.Append(audit.Entry{Action: "a"})
	}
	if _, err := s.Begin(t.Context(), who); !errors.Is(err, audit.ErrFull) {
		t.Errorf("a sign-in: got %v, want %v", err, audit.ErrFull)
	}
	if all := registry.Tokens(access.Server(), true); len(all) != 1 {
		t.Errorf("there are these sessions: %+v", all)
	}
	if err := s.End(t.Context(), secret); err != nil {
		t.Error("a sign-out:", err)
	}
	if _, err := registry.Authenticate(secret); runtime.CodeOf(err) != runtime.CodeUnauthenticated {
		t.Errorf("after the sign-out: got %v, want UNAUTHENTICATED", err)
	}
	if _, err := s.Begin(t.Context(), who); runtime.CodeOf(err) != runtime.CodeClusterUnavailable {
		t.Errorf("a sign-in without a tenant: got %v, want CLUSTER_UNAVAILABLE", err)
	}
}

// TestFailedSignInsAreBounded in the audit log: a person without a tenant can try any number of times.
func TestFailedSignInsAreBounded(t *testing.T) {
	registry := identity.New(identity.Config{Key: make([]byte, 32), Logger: zap.NewNop()})
	recorded := 0
	log, err := audit.New(audit.Config{Store: gone{}, Unstored: func(entries []json.RawMessage) { recorded += len(entries) }})
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		_, err := sessions{registry, log, false}.Begin(t.Context(), signin.Identity{Name: "Ada", Tenant: "none", Role: access.Client})
		if !errors.Is(err, signin.ErrUnknownTenant) {
			t.Fatalf("got %v, want %v", err, signin.ErrUnknownTenant)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := log.Run(ctx); err == nil || recorded < 1 || recorded > 200 {
		t.Errorf("%d are recorded, %v", recorded, err)
	}
}
