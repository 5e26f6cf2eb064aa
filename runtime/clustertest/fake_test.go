package clustertest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/rockpool/rockpool/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFakeIsACluster(t *testing.T) {
	Suite(t, runtime.Environment{Image: "fake", PoolSize: 1}, func(t *testing.T) runtime.Cluster {
		f := NewFake()
		t.Cleanup(func() {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
		return f
	})
}
