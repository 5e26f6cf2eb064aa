package engine

import (
	"testing"

	"github.com/rockpool/rockpool/runtime"
)

func TestEnvironments(t *testing.T) {
	b := newBed(t)
	put := func(in PutEnvironmentInput) (runtime.Environment, bool, error) {
		in.ID = "a"
		return b.PutEnvironment(t.Context(), in)
	}
	env, created, err := put(PutEnvironmentInput{IfRevision: ptr(0)})
	if err != nil || !created || env.Revision != 1 || env.Image != "host" || env.Resources != runtime.DefaultResources() {
		t.Fatalf("%+v, %v, %v", env, created, err)
	}
	_, _, err = put(PutEnvironmentInput{IfRevision: ptr(0)})
	wantCode(t, err, runtime.CodeConflict, "")
	env, created, err = put(PutEnvironmentInput{})
	if err != nil || created || env.Revision != 1 {
		t.Errorf("a put of nothing: %+v, %v, %v", env, created, err)
	}
	env, _, err = put(PutEnvironmentInput{PoolSize: ptr(3)})
	if err != nil || env.Revision != 2 || env.RunnerRevision != 1 {
		t.Errorf("%+v, %v", env, err)
	}
	env, _, err = put(PutEnvironmentInput{MemoryMiB: ptr(64), IfRevision: ptr(2)})
	if err != nil || env.Revision != 3 || env.RunnerRevision != 3 || env.PoolSize != 3 {
		t.Errorf("%+v, %v", env, err)
	}
	narrowed := PutEnvironmentInput{NetworkAccess: ptr(true), Allow: []string{"2a00::/16"}, AllowNames: []string{"*.pypi.org"}, BandwidthMbit: ptr(5)}
	for range 2 { // the second changes nothing
		env, _, err = put(narrowed)
		if n := env.Network; err != nil || env.RunnerRevision != 4 || !n.Narrow() || n.Allow[0] != "2a00::/16" || n.AllowNames[0] != "*.pypi.org" || n.BandwidthMbit != 5 {
			t.Errorf("%+v, %v", env, err)
		}
	}
	env, _, err = put(PutEnvironmentInput{NetworkAccess: ptr(false), Allow: []string{}, AllowNames: []string{}})
	if err != nil || env.RunnerRevision != 5 || env.Network.Used() {
		t.Errorf("%+v, %v", env, err)
	}
	for field, in := range map[string]PutEnvironmentInput{
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
		wantCode(t, err, runtime.CodeInvalidInput, field)
	}
	if now, _ := b.Environment("a"); now.Revision != 5 {
		t.Errorf("a refused put changed it: %+v", now)
	}
	_, _, err = b.PutEnvironment(t.Context(), PutEnvironmentInput{ID: "../x"})
	wantCode(t, err, runtime.CodeInvalidInput, "id")
}
