package engine

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/request"
	"github.com/rockpool/rockpool/test/clustertest"
	"github.com/rockpool/rockpool/test/refusal"
	"github.com/rockpool/rockpool/test/wait"
)

func TestEnvironments(t *testing.T) {
	b := newBed(t)
	put := func(in request.Environment) (runtime.Environment, bool, error) {
		in.ID = "a"
		return b.Environments.Put(asServer(t), in)
	}
	env, created, err := put(request.Environment{IfRevision: ptr(0)})
	if err != nil || !created || env.Revision != 1 || env.Image != "host" || env.Resources != runtime.DefaultResources() {
		t.Fatalf("%+v, %v, %v", env, created, err)
	}
	_, _, err = put(request.Environment{IfRevision: ptr(0)})
	refusal.Want(t, err, runtime.CodeConflict, "")
	env, created, err = put(request.Environment{})
	if err != nil || created || env.Revision != 1 {
		t.Errorf("a put without changes: %+v, %v, %v", env, created, err)
	}
	env, _, err = put(request.Environment{PoolSize: ptr(3)})
	if err != nil || env.Revision != 2 || env.RunnerRevision != 1 {
		t.Errorf("%+v, %v", env, err)
	}
	env, _, err = put(request.Environment{MemoryMiB: ptr(64), IfRevision: ptr(2)})
	if err != nil || env.Revision != 3 || env.RunnerRevision != 3 || env.PoolSize != 3 {
		t.Errorf("%+v, %v", env, err)
	}
	narrowed := request.Environment{NetworkAccess: ptr(true), Allow: []string{"2a00::/16"}, AllowNames: []string{"*.pypi.org"}, BandwidthMbit: ptr(5)}
	for range 2 { // the second changes nothing
		env, _, err = put(narrowed)
		if n := env.Network; err != nil || env.RunnerRevision != 4 || !n.Narrow() || n.Allow[0] != "2a00::/16" || n.AllowNames[0] != "*.pypi.org" || n.BandwidthMbit != 5 {
			t.Errorf("%+v, %v", env, err)
		}
	}
	env, _, err = put(request.Environment{NetworkAccess: ptr(false), Allow: []string{}, AllowNames: []string{}})
	if err != nil || env.RunnerRevision != 5 || env.Network.Used() {
		t.Errorf("%+v, %v", env, err)
	}
	for field, in := range map[string]request.Environment{
		"poolSize":               {PoolSize: ptr(-1)},
		"resources.memoryMiB":    {MemoryMiB: ptr(1 << 40)},
		"resources.cpuMHz":       {CPUMHz: ptr(0)},
		"resources.processes":    {Processes: ptr(1)},
		"resources.workspaceMiB": {WorkspaceMiB: ptr(0)},
		"image":                  {Image: ptr("")},
		"isolation":              {Isolation: ptr(runtime.Isolation("X"))},
		"defaultTimeLimit":       {DefaultTimeLimit: ptr(1 << 62)},
		"outputLimit":            {OutputLimit: ptr(int64(1))},
		"network.exposedPorts.1": {ExposedPorts: []int{80, 70000}},
		"network.allow":          {Allow: []string{"20.0.0.0/8"}}, // without access
		"network.allow.1":        {NetworkAccess: ptr(true), Allow: []string{"20.0.0.1", "20.0.0.1/8"}},
		"network.allow.0":        {NetworkAccess: ptr(true), Allow: []string{"example.org"}},
		"network.allowNames":     {NetworkAccess: ptr(true), AllowNames: make([]string, 65)},
		"network.allowNames.2":   {NetworkAccess: ptr(true), AllowNames: []string{"pypi.org", "*.pypi.org", "a.*.org"}},
		"network.allowNames.0":   {NetworkAccess: ptr(true), AllowNames: []string{"pypi.org."}},
		"network.bandwidthMbit":  {BandwidthMbit: ptr(-1)},
		"variables.0.name":       {Variables: []runtime.Variable{{Name: "A=B"}}},
		"variables.1.name":       {Variables: []runtime.Variable{{Name: "A"}, {Name: "A"}}},
		"variables.0.value":      {Variables: []runtime.Variable{{Name: "A", Value: "\x00"}}},
	} {
		_, _, err := put(in)
		refusal.Want(t, err, runtime.CodeInvalidInput, field)
	}
	if now, _ := b.environmentRegistry.Get("a"); now.Revision != 5 {
		t.Errorf("a refused put changed it: %+v", now)
	}
	_, _, err = b.Environments.Put(asServer(t), request.Environment{ID: "../x"})
	refusal.Want(t, err, runtime.CodeInvalidInput, "id")
}

func TestEnvironmentsSetAnInterpreter(t *testing.T) {
	b := newBed(t)
	put := func(in request.Environment) (runtime.Environment, error) {
		in.ID = "a"
		env, _, err := b.Environments.Put(asServer(t), in)
		return env, err
	}
	python := func(modules ...string) *runtime.Warm {
		return &runtime.Warm{Interpreter: runtime.InterpreterPython, Modules: modules}
	}
	env, err := put(request.Environment{Warm: python("json", "os.path")})
	if err != nil || env.Warm == nil || !slices.Equal(env.Warm.Modules, []string{"json", "os.path"}) {
		t.Fatalf("%+v, %v", env, err)
	}
	numbered := make([]string, runtime.MaxWarmModules+1)
	for i := range numbered {
		numbered[i] = "m" + strings.Repeat("x", i)
	}
	for name, test := range map[string]struct {
		field string
		in    request.Environment
	}{
		"another interpreter":   {"warm.interpreter", request.Environment{Warm: &runtime.Warm{Interpreter: "RUBY"}}},
		"no interpreter":        {"warm.interpreter", request.Environment{Warm: &runtime.Warm{}}},
		"too many modules":      {"warm.modules", request.Environment{Warm: python(numbered...)}},
		"an empty name":         {"warm.modules", request.Environment{Warm: python("")}},
		"a path":                {"warm.modules", request.Environment{Warm: python("../json")}},
		"code":                  {"warm.modules", request.Environment{Warm: python("os;x")}},
		"a line":                {"warm.modules", request.Environment{Warm: python("json\n")}},
		"a NUL":                 {"warm.modules", request.Environment{Warm: python("json\x00os")}},
		"a dot at the end":      {"warm.modules", request.Environment{Warm: python("json.")}},
		"a relative module":     {"warm.modules", request.Environment{Warm: python(".json")}},
		"a digit first":         {"warm.modules", request.Environment{Warm: python("3d")}},
		"a long name":           {"warm.modules", request.Environment{Warm: python(strings.Repeat("m", 129))}},
		"one twice":             {"warm.modules", request.Environment{Warm: python("json", "os", "json")}},
		"without isolation":     {"warm", request.Environment{Isolation: ptr(runtime.IsolationNone)}},
		"a kernel of their own": {"warm", request.Environment{Isolation: ptr(runtime.IsolationGVisor)}},
		"a runtime":             {"warm", request.Environment{Runtime: ptr("other")}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := put(test.in)
			refusal.Want(t, err, runtime.CodeInvalidInput, test.field)
		})
	}
	if now, _ := b.environmentRegistry.Get("a"); now.Revision != 1 {
		t.Errorf("a refused put changed it: %+v", now)
	}
	if env, err = put(request.Environment{PoolSize: ptr(4)}); err != nil || env.Warm == nil || env.RunnerRevision != 1 {
		t.Errorf("a put without it: %+v, %v", env, err)
	}
	if env, err = put(request.Environment{Warm: python("json")}); err != nil || len(env.Warm.Modules) != 1 || env.RunnerRevision != 3 {
		t.Errorf("other modules: %+v, %v", env, err)
	}
	if env, err = put(request.Environment{Warm: &runtime.Warm{Interpreter: runtime.InterpreterNone}}); err != nil || env.Warm != nil || env.RunnerRevision != 4 {
		t.Errorf("NONE: %+v, %v", env, err)
	}
}

// TestEnvironmentsChangeTheirTenant checks that a change of the tenant replaces idle runners and
// leaves claimed ones.
func TestEnvironmentsChangeTheirTenant(t *testing.T) {
	b := newBed(t)
	b.environment(t, "a", 1)
	held := b.claim(t, "a")
	env, _, err := b.Environments.Put(asServer(t), request.Environment{ID: "a", Tenant: ptr(runtime.TenantID("t"))})
	if err != nil || env.Revision != 2 || env.RunnerRevision != 2 {
		t.Errorf("%+v, %v", env, err)
	}
	r, err := b.Runners.Claim(as(t, "t"), request.Claim{EnvironmentID: "a", WaitFor: ptr(patient)})
	if err != nil || r.Environment.Tenant != "t" {
		t.Errorf("%+v, %v", r, err)
	}
	if now, ok := b.runnerIndex.get(held.ID); !ok || now.State != runtime.RunnerClaimed || now.Tenant() != runtime.DefaultTenant {
		t.Errorf("%+v", now)
	}
}

// A pinningCluster pins each image to one digest, and counts the calls.
type pinningCluster struct {
	*clustertest.Fake
	calls *atomic.Int64
}

func (c pinningCluster) PinImage(context.Context, string) (runtime.ImagePin, error) {
	c.calls.Add(1)
	return runtime.ImagePin{Digest: "sha256:1"}, nil
}

func (pinningCluster) ImageStatus(runtime.ImagePin) runtime.ImageStatus { return runtime.ImageStatus{} }

// TestImagesAreResolvedForTheOwnerOnly checks that a refused put says nothing about another tenant's
// environment: warm runners can't be without isolation.
func TestImagesAreResolvedForTheOwnerOnly(t *testing.T) {
	b := newBed(t)
	b.stop()
	calls := new(atomic.Int64)
	b.cluster = pinningCluster{b.fake, calls}
	b.start(t)
	in := request.Environment{ID: "a", Image: ptr("x"), PoolSize: ptr(0), Warm: &runtime.Warm{Interpreter: runtime.InterpreterPython, Modules: []string{"json"}}}
	if _, _, err := b.Environments.Put(as(t, "t"), in); err != nil || calls.Load() != 1 {
		t.Fatalf("%v after %d calls", err, calls.Load())
	}
	for _, isolation := range []runtime.Isolation{runtime.IsolationNamespaces, runtime.IsolationNone} {
		_, _, err := b.Environments.Put(as(t, "u"), request.Environment{ID: "a", Image: ptr("x"), Isolation: &isolation})
		refusal.Want(t, err, runtime.CodeConflict, "")
	}
	if calls.Load() != 1 {
		t.Errorf("%d calls, want 1", calls.Load())
	}
}

// TestIDsOfDeletedEnvironments checks that an id stays with its tenant while a runner is claimed.
// Otherwise another tenant could remove that runner with endClaimed.
func TestIDsOfDeletedEnvironments(t *testing.T) {
	b := newBed(t)
	put := func(tenant runtime.TenantID) error {
		_, _, err := b.Environments.Put(as(t, tenant), request.Environment{ID: "a", PoolSize: ptr(0)})
		return err
	}
	remove := func(tenant runtime.TenantID) bool {
		deleted, err := b.Environments.Delete(as(t, tenant), "a", false)
		if err != nil {
			t.Error(err)
		}
		return deleted
	}
	if err := put("t"); err != nil {
		t.Fatal(err)
	}
	r, err := b.Runners.Claim(as(t, "t"), request.Claim{EnvironmentID: "a", WaitFor: ptr(patient)})
	if err != nil || !remove("t") {
		t.Fatal(err)
	}
	refusal.Want(t, put("u"), runtime.CodeConflict, "")
	if err := put("t"); err != nil {
		t.Errorf("its own tenant: %v", err)
	}
	if remove("u") || !remove("t") {
		t.Error("another tenant deleted it, or its own can't")
	}
	if released, err := b.Runners.Release(asServer(t), r.ID); err != nil || !released {
		t.Errorf("%v, %v", released, err)
	}
	wait.For(t, "the id is free", func() bool { return b.environmentRegistry.Pool("a") == nil })
	if err := put("u"); err != nil || !remove("u") {
		t.Error(err)
	}
}
