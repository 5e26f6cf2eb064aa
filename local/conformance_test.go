package local

import (
	"path/filepath"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/test/clustertest"
)

// The suite runs with the store that the server uses.
func TestConformance(t *testing.T) {
	t.Parallel()
	clustertest.Suite(t, hostEnvironment(), func(t *testing.T) runtime.Cluster {
		b := newBench(t)
		b.stop()
		b.useSQLite()
		b.open()
		b.run()
		return b.Cluster
	})
}

// useSQLite lets the bench's next cluster keep its records in a file.
func (b *bench) useSQLite() {
	b.t.Helper()
	s, err := store.Open(b.t.Context(), filepath.Join(b.t.TempDir(), "store.db"))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.t.Error(err)
		}
	})
	b.config.Store = s
}
