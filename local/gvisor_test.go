package local

import (
	"testing"

	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/local/sandbox/sandboxtest"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/clustertest"
)

// withGVisor opens a cluster that has gVisor, and doesn't run yet.
func withGVisor(t testing.TB) *bench {
	t.Helper()
	sandboxtest.NeedRoot(t)
	b := newBench(t)
	b.stop()
	b.config.Runtimes = oci.Runtimes{oci.GVisor: {Path: sandboxtest.GVisor(t)}}
	b.open()
	return b
}

func gvisorEnvironment() runtime.Environment {
	env := hostEnvironment()
	env.Isolation = runtime.IsolationGVisor
	return env
}

func TestConformanceGVisor(t *testing.T) {
	clustertest.Suite(t, gvisorEnvironment(), func(t *testing.T) runtime.Cluster {
		return withGVisor(t).run().Cluster
	})
}

func TestGVisorKernel(t *testing.T) {
	b := withGVisor(t).run()
	id := b.begin(gvisorEnvironment())
	got, exit := b.sh(id, "cat /proc/version; id -u; grep Seccomp: /proc/self/status")
	t.Log(got, exit)
}
