package nomad

import (
	"slices"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/runtime/health"
	"github.com/rockpool/rockpool/test/nomadtest"
)

// examine returns the findings for a modified configuration, by name.
func examine(t *testing.T, n *nomadtest.Nomad, change func(*Config)) map[string]health.Finding {
	t.Helper()
	c := config(t, n, job.RawExec)
	change(&c)
	found, err := Examine(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]health.Finding{}
	for _, f := range found {
		all[f.Name] = f
	}
	return all
}

func TestExamineReportsProblems(t *testing.T) {
	n := raw.Nomad(t)
	good := examine(t, n, func(*Config) {})
	for _, name := range []string{"nomad", "policy", "template", "nodes", "connections"} {
		if f, there := good[name]; !there || f.Status != health.OK || f.Advice != "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
	// Without the last rule of the policy, which is optional.
	less, _, _ := strings.Cut(nomadtest.Policy, "agent {")
	token := n.TokenWith(t, less)
	f := examine(t, n, func(c *Config) { c.Connection.Token = token })["connections"]
	if f.Status != health.Warn || !strings.Contains(f.Advice, `agent { policy = "read" }`) {
		t.Errorf("%+v", f)
	}
	for _, test := range []struct {
		name, says string
		change     func(*Config)
	}{
		{"nomad", "connection refused", func(c *Config) { c.Connection.Address = "https://127.0.0.1:1" }},
		{"nomad", "certificate", func(c *Config) { c.Connection.ClientCert, c.Connection.ClientKey = "", "" }},
		{"policy", "jobs", func(c *Config) { c.Connection.Token = "00000000-0000-0000-0000-000000000000" }},
		{"nodes", "docker", func(c *Config) { c.Jobs.Driver = job.Docker }},
		{"template", "service", func(c *Config) {
			c.Jobs.Template = []byte(`{"Type": "service", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "raw_exec"}]}]}`)
		}},
		{"memory", "oversubscription", func(c *Config) { c.Jobs.MemoryReserve, c.Connection.Token = 0.5, n.ManagementToken() }},
		{"connections", "5000", func(c *Config) { c.Bridges, c.Connection.Calls = 4984, 16 }},
	} {
		f := examine(t, n, test.change)[test.name]
		if f.Status != health.Fail || f.Advice == "" || !strings.Contains(f.Message, test.says) {
			t.Errorf("%s: got %+v, want FAIL with %q", test.name, f, test.says)
		}
	}
}

// The Docker daemon of the tests has no bridge.
func TestExamineReportsDockerWithoutBridge(t *testing.T) {
	for mode, want := range map[string]health.Status{"": health.Warn, "cni/runners": ""} {
		c := config(t, container.Nomad(t), job.Docker)
		c.Jobs.NetworkMode = mode
		found, err := Examine(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(found, func(f health.Finding) bool { return f.Name == "network" })
		switch {
		case want == "" && i >= 0:
			t.Errorf("with a network of its own: %+v", found[i])
		case want != "" && (i < 0 || found[i].Status != want || !strings.Contains(found[i].Message, "1 of 1 nodes")):
			t.Errorf("%+v", found)
		}
	}
}

// Nomad's docker plugin allows no volumes by default.
func TestExamineRecommendsAWorkspace(t *testing.T) {
	t.Parallel()
	n := container.Nomad(t)
	for workspace, want := range map[string]health.Status{job.WorkspaceTmpfs: health.Warn, job.WorkspaceVolume: health.Fail} {
		f := examine(t, n, func(c *Config) { c.Jobs.Driver, c.Jobs.Workspace = job.Docker, workspace })["workspace"]
		if f.Status != want || !strings.Contains(f.Advice, "volumes { enabled = true }") {
			t.Errorf("%s: %+v", workspace, f)
		}
	}
}
