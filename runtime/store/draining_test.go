package store

import (
	"path/filepath"
	"testing"
	"time"
)

func TestDrainingIsStored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rockpool.db")
	first, second := time.UnixMilli(1_000).UTC(), time.UnixMilli(2_000).UTC()
	s := open(t, path)
	for _, since := range []time.Time{{}, first, second, {}, {}, second} {
		if err := s.SetDraining(t.Context(), since); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Draining(t.Context()); err != nil || !got.Equal(since) {
			t.Errorf("%v %v, want %v", got, err, since)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	if got, err := s.Draining(t.Context()); err != nil || !got.Equal(second) {
		t.Errorf("afterwards %v %v", got, err)
	}
}
