package store

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// TestUnreadableTimesOfAClaim checks that the holder keeps its runner for a safe time, which is
// stored for the next server.
func TestUnreadableTimesOfAClaim(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	claimed := time.Now().UTC().Truncate(time.Second)
	good := runtime.Claim{Epoch: 1, Key: "k", Holder: "ada", HolderScope: "physics", Input: "i", ClaimedAt: claimed, ExpiresAt: claimed.Add(time.Hour), InactivityTimeout: time.Hour,
		Labels: []runtime.Label{{Name: "a", Value: "b"}}}
	for id, timeout := range map[runtime.RunnerID]time.Duration{"text": safeTimeout, "negative": safeTimeout, "missing": safeTimeout, "expiry": time.Hour, "good": time.Hour} {
		if err := s.PutRunner(t.Context(), runtime.Runner{ID: id, State: runtime.RunnerIdle}, nil); err != nil {
			t.Fatal(err)
		}
		if err := s.MarkRunner(t.Context(), id, good); err != nil {
			t.Fatal(err)
		}
		path, value := "$.inactivityTimeout", any("ten minutes")
		switch id {
		case "negative":
			value = -1
		case "missing":
			value = nil
		case "expiry":
			path = "$.expiresAt"
		case "good":
			path, value = "$.key", "k"
		}
		if err := change(t, s, "UPDATE runners SET claim = CAST(json_set(CAST(claim AS TEXT), $1, $2) AS BLOB) WHERE id = $3", path, value, id); err != nil {
			t.Fatal(err)
		}
		var first runtime.Claim
		for again := range 2 {
			before := time.Now()
			err := s.Runners(t.Context(), func(r runtime.Runner, _ []byte, unreadable error) error {
				if r.ID != id {
					return nil
				}
				c := r.Claim
				if unreadable != nil || r.State != runtime.RunnerClaimed || c.Epoch != 1 || c.Key != "k" || c.Holder != "ada" || c.HolderScope != "physics" || c.Input != "i" || !c.ClaimedAt.Equal(claimed) || len(c.Labels) != 1 {
					t.Errorf("%s: %v, %+v", id, unreadable, r)
				}
				if c.InactivityTimeout != timeout || again == 0 && id != "good" && c.ExpiresAt.Before(before.Add(timeout)) {
					t.Errorf("%s: its times are %v, %v", id, c.InactivityTimeout, c.ExpiresAt)
				}
				if again == 1 && !c.Equal(first) {
					t.Errorf("%s: it differs from what was stored: %+v, %+v", id, first, c)
				}
				first = c
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

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
