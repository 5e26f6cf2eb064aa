package engine

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/test/clustertest"
)

// TestNothingIsServedBeforeOnLeader checks that OnLeader runs before anything is served, and that its error
// ends the start.
func TestNothingIsServedBeforeOnLeader(t *testing.T) {
	fake := clustertest.NewFake()
	db, err := store.Open(asServer(t), filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the tokens can't be read")
	e := New(fake, db, Config{Dir: t.TempDir(), Logger: zap.NewNop(), OnLeader: func(context.Context) error { return broken }})
	if err := e.Run(asServer(t)); !errors.Is(err, broken) {
		t.Errorf("it ran on: got %v, want %v", err, broken)
	}
	select {
	case <-e.Restored():
		t.Error("it served")
	default:
	}
	if err := errors.Join(fake.Close(), db.Close()); err != nil {
		t.Error(err)
	}
}
