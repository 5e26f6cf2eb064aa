package health

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// TestRecordsAreStored checks that links planted by the data directory's owner redirect nothing
// that root writes, and that a record replaces only the one of its own tier.
func TestRecordsAreStored(t *testing.T) {
	data, victim := t.TempDir(), filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("as it was"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := attackRunFile(data, runtime.IsolationNamespaces)
	for _, link := range []string{at, at + ".new", filepath.Join(data, "attacks.json.new")} {
		if err := os.Symlink(victim, link); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now().UTC().Truncate(time.Second)
	failed := AttackRun{At: now, Isolation: runtime.IsolationNamespaces, Tried: 2, Held: 1, Failed: []string{"other"}}
	clean := AttackRun{At: now.Add(time.Hour), Isolation: runtime.IsolationGVisor, Tried: 1, Held: 1}
	for _, report := range []AttackRun{failed, clean} {
		if err := report.Store(data); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(victim); err != nil || string(text) != "as it was" {
		t.Errorf("a link led to %q, %v", text, err)
	}
	if info, err := os.Lstat(at); err != nil || info.Mode() != 0o644 {
		t.Errorf("the report is %v, %v", info, err)
	}
	last, err := LastAttackRun(data)
	if err != nil || last == nil || last.Isolation != runtime.IsolationNamespaces || !slices.Equal(last.Failed, []string{"other"}) {
		t.Errorf("with one tier not held and the other held later: %+v, %v", last, err)
	}
	failed.Held, failed.Failed = 2, nil
	if err := failed.Store(data); err != nil {
		t.Fatal(err)
	}
	if last, err := LastAttackRun(data); err != nil || last == nil || last.Isolation != runtime.IsolationGVisor {
		t.Errorf("with both held: %+v, %v, not the last", last, err)
	}
	if entries, err := os.ReadDir(data); err != nil || len(entries) != 4 {
		t.Errorf("%v are left, %v", entries, err)
	}
}
