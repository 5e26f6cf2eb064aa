package main

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/runtime"
)

func TestCheckSpec(t *testing.T) {
	request := func() *helper.Request {
		env := runtime.Environment{Image: "host", Isolation: runtime.IsolationNamespaces, Resources: runtime.DefaultResources()}
		m := sandbox.Machine{CoreMHz: 2000, Swap: true, Binds: []string{"/usr"}}
		return &helper.Request{ID: "a", StateDir: "/x", Cgroup: "/rockpool/a", Spec: sandbox.Spec(env, m, sandbox.Root{Path: "/root"}, "/rockpool/a", 0)}
	}
	if _, err := checkSpec(request()); err != nil {
		t.Errorf("the server's own spec: %v", err)
	}
	for name, change := range map[string]func(*helper.Request){
		"no spec":                func(q *helper.Request) { q.Spec = nil },
		"no process":             func(q *helper.Request) { q.Spec.Process = nil },
		"hooks":                  func(q *helper.Request) { q.Spec.Hooks = &specs.Hooks{} },
		"a relative root":        func(q *helper.Request) { q.Spec.Root.Path = "root" },
		"a writable root":        func(q *helper.Request) { q.Spec.Root.Readonly = false },
		"another group":          func(q *helper.Request) { q.Spec.Linux.CgroupsPath = "/rockpool/b" },
		"no user namespace":      func(q *helper.Request) { q.Spec.Linux.Namespaces = q.Spec.Linux.Namespaces[1:] },
		"the machine's network":  func(q *helper.Request) { q.Spec.Linux.Namespaces[6].Path = "/proc/1/ns/net" },
		"the machine's root":     func(q *helper.Request) { q.Spec.Linux.UIDMappings[0].HostID = 0 },
		"many users":             func(q *helper.Request) { q.Spec.Linux.UIDMappings[0].Size = 1 << 17 },
		"no groups":              func(q *helper.Request) { q.Spec.Linux.GIDMappings = nil },
		"a writable bind":        func(q *helper.Request) { q.Spec.Mounts[6].Options = []string{"bind"} },
		"new privileges":         func(q *helper.Request) { q.Spec.Process.NoNewPrivileges = false },
		"CAP_SYS_ADMIN":          func(q *helper.Request) { q.Spec.Process.Capabilities.Bounding = []string{"CAP_SYS_ADMIN"} },
		"no command":             func(q *helper.Request) { q.Spec.Process.Args = nil },
		"no limit of memory":     func(q *helper.Request) { q.Spec.Linux.Resources.Memory = nil },
		"unlimited memory":       func(q *helper.Request) { *q.Spec.Linux.Resources.Memory.Limit = -1 },
		"no limit of processes":  func(q *helper.Request) { q.Spec.Linux.Resources.Pids.Limit = nil },
		"no limit of CPU time":   func(q *helper.Request) { q.Spec.Linux.Resources.CPU.Quota = nil },
		"no limits":              func(q *helper.Request) { q.Spec.Linux.Resources = nil },
		"a terminal":             func(q *helper.Request) { q.Spec.Process.Terminal = true },
		"no capabilities at all": func(q *helper.Request) { q.Spec.Process.Capabilities = nil },
	} {
		q := request()
		change(q)
		if _, err := checkSpec(q); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
