package helper

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/test/sandboxtest"
)

func TestNames(t *testing.T) {
	for id, want := range map[string]bool{
		"a": true, "01a1fafa-4baf-7bc8-9f9d-88a98e2b4ed1": true, "A_b-9": true, strings.Repeat("a", 64): true,
		"": false, "-a": false, "_a": false, ".": false, "..": false, "a/b": false, "a b": false, "a\x00": false, "ä": false, strings.Repeat("a", 65): false,
	} {
		if ValidID(id) != want {
			t.Errorf("ValidID(%q) is %v", id, !want)
		}
	}
	for group, want := range map[string]bool{
		"/rockpool": true, "/rockpool/test": true, "/rockpool/a/b/c/d": true,
		"": false, "/": false, "rockpool": false, "/other": false, "/rockpool/": false, "/rockpool/..": false,
		"/rockpool/../x": false, "/rockpool//x": false, "/rockpoolx": false, "/rockpool/a/b/c/d/e": false,
	} {
		if ValidParent(group) != want {
			t.Errorf("ValidParent(%q) is %v", group, !want)
		}
	}
}

func TestRead(t *testing.T) {
	for _, good := range []string{sandboxtest.Create, sandboxtest.Remove, sandboxtest.Hello, sandboxtest.Probe, sandboxtest.Lease, sandboxtest.Verify} {
		if q, err := Read(strings.NewReader(good)); err != nil || q.ID != "a" && q.Command != Hello && q.Command != Probe {
			t.Errorf("%s: %+v, %v", good, q, err)
		}
	}
	for _, text := range append(sandboxtest.Hostile(), sandboxtest.Remove+strings.Repeat(" ", MaxMessage)) {
		if q, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("%.200q is read as %+v", text, q)
		}
	}
}

func config() Config {
	return Config{State: "/s", Root: "/r", Images: "/i", Parent: "/rockpool", Machine: spec.Machine{CoreMHz: 2000, Swap: true, Binds: []string{"/usr"}}}
}

func TestReadConfig(t *testing.T) {
	text, err := json.Marshal(config())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ReadConfig(string(text)); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Config){
		"relative state": func(c *Config) { c.State = "s" }, "no state": func(c *Config) { c.State = "" }, "state /": func(c *Config) { c.State = "/" },
		"no root": func(c *Config) { c.Root = "" }, "images that lead up": func(c *Config) { c.Images = "/i/../x" },
		"another parent": func(c *Config) { c.Parent = "/system.slice" }, "no machine": func(c *Config) { c.Machine.CoreMHz = 0 },
	} {
		c := config()
		change(&c)
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ReadConfig(string(text)); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// FuzzRead: every accepted request is for a confined sandbox.
func FuzzRead(f *testing.F) {
	for _, text := range append(sandboxtest.Hostile(), sandboxtest.Create, sandboxtest.Remove, sandboxtest.Hello, sandboxtest.Probe, sandboxtest.Lease, sandboxtest.Verify) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := Read(strings.NewReader(text))
		if err != nil {
			return
		}
		c := config()
		if q.Command == Hello || q.Command == Probe || q.Command == Work {
			return
		}
		if path.Dir(c.Group(q.ID)) != c.Parent || path.Dir(path.Join(c.State, q.ID)) != c.State {
			t.Errorf("%q isn't one name", q.ID)
		}
		if path.Dir(path.Dir(path.Join(c.Images, ImageRoot(q.Image)))) != c.Images && q.Image != "" {
			t.Errorf("%q leads out of the images", q.Image)
		}
		if again, err := json.Marshal(q); err != nil {
			t.Error(err)
		} else if _, err := Read(strings.NewReader(string(again))); err != nil {
			t.Errorf("%s isn't read again: %v", again, err)
		}
		if q.Command != Create {
			return
		}
		for _, root := range []spec.Root{{Path: "/run/rockpool/root"}, {Path: "/run/rockpool/root", Image: true, Agent: "/r/agent"}} {
			for _, gvisor := range []bool{false, true} {
				made := spec.New(spec.Sandbox{Group: c.Group(q.ID), Slot: q.Slot, Resources: *q.Resources, Root: root, GVisor: gvisor}, c.Machine)
				if gvisor { // its clocks start with its own kernel
					made.Linux.Namespaces = append(made.Linux.Namespaces, specs.LinuxNamespace{Type: specs.TimeNamespace})
				}
				if err := confined(made); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

var namespaces = []specs.LinuxNamespaceType{
	specs.UserNamespace, specs.PIDNamespace, specs.MountNamespace, specs.IPCNamespace,
	specs.UTSNamespace, specs.CgroupNamespace, specs.NetworkNamespace, specs.TimeNamespace,
}

// Capabilities that the agent needs to start commands as another user, end them, and write files
// into the workspace.
var capabilities = []string{
	"CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SETPCAP", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER",
}

// confined returns an error unless a spec has the properties of every sandbox. These are: no hooks,
// its own namespaces, no users of the machine, nothing of the machine writable, few capabilities,
// and limits.
func confined(s *specs.Spec) error {
	p := s.Process
	if s.Hooks != nil || p.Terminal || !p.NoNewPrivileges || len(p.Args) == 0 || p.Args[0] != spec.AgentPath {
		return errors.New("it has hooks, a terminal or new privileges, or isn't the agent's")
	}
	if s.Root.Path != "/run/rockpool/root" || !s.Root.Readonly {
		return fmt.Errorf("its root is %+v", s.Root)
	}
	for _, wanted := range namespaces {
		if !slices.Contains(s.Linux.Namespaces, specs.LinuxNamespace{Type: wanted}) {
			return fmt.Errorf("it has no %s namespace of its own", wanted)
		}
	}
	for _, ids := range [][]specs.LinuxIDMapping{s.Linux.UIDMappings, s.Linux.GIDMappings} {
		if len(ids) != 1 || ids[0].ContainerID != 0 || ids[0].Size != 1<<16 || ids[0].HostID < 1_000_000_000 || ids[0].HostID > 1<<32-1<<16 {
			return fmt.Errorf("its users are %+v", ids)
		}
	}
	for _, m := range s.Mounts {
		bound := slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
		if bound && (!slices.Contains(m.Options, "ro") || !strings.HasPrefix(m.Source, spec.Views+"/") && !slices.Contains([]string{"/usr", "/r/agent", "/run/rockpool/root/.rockpool/agent"}, m.Source)) {
			return fmt.Errorf("the mount at %s is %+v", m.Destination, m)
		}
	}
	c := p.Capabilities
	for _, name := range slices.Concat(c.Bounding, c.Effective, c.Permitted, c.Inheritable, c.Ambient) {
		if !slices.Contains(capabilities, name) {
			return fmt.Errorf("it has %s", name)
		}
	}
	_, err := spec.Limits(s, nil)
	return err
}

func TestConfinedCanFail(t *testing.T) {
	made := func() *specs.Spec {
		r := spec.Resources{CPUMHz: 100, MemoryMiB: 64, Processes: 32, WorkspaceMiB: 8}
		return spec.New(spec.Sandbox{Group: "/rockpool/a", Resources: r, Root: spec.Root{Path: "/run/rockpool/root"}}, config().Machine)
	}
	if err := confined(made()); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*specs.Spec){
		"hooks":                 func(s *specs.Spec) { s.Hooks = &specs.Hooks{} },
		"a writable root":       func(s *specs.Spec) { s.Root.Readonly = false },
		"no user namespace":     func(s *specs.Spec) { s.Linux.Namespaces = s.Linux.Namespaces[1:] },
		"the machine's network": func(s *specs.Spec) { s.Linux.Namespaces[6].Path = "/proc/1/ns/net" },
		"the machine's root":    func(s *specs.Spec) { s.Linux.UIDMappings[0].HostID = 0 },
		"many users":            func(s *specs.Spec) { s.Linux.UIDMappings[0].Size = 1 << 17 },
		"a writable bind":       func(s *specs.Spec) { s.Mounts[6].Options = []string{"bind"} },
		"another bind":          func(s *specs.Spec) { s.Mounts[6].Source = "/etc" },
		"new privileges":        func(s *specs.Spec) { s.Process.NoNewPrivileges = false },
		"CAP_SYS_ADMIN":         func(s *specs.Spec) { s.Process.Capabilities.Bounding = []string{"CAP_SYS_ADMIN"} },
		"unlimited memory":      func(s *specs.Spec) { *s.Linux.Resources.Memory.Limit = -1 },
		"no limit of processes": func(s *specs.Spec) { s.Linux.Resources.Pids.Limit = nil },
		"no limit of CPU time":  func(s *specs.Spec) { s.Linux.Resources.CPU.Quota = nil },
	} {
		s := made()
		change(s)
		if err := confined(s); err == nil {
			t.Errorf("%s passes", name)
		}
	}
}
