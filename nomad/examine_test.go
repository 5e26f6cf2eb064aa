package nomad

import (
	"strings"
	"testing"

	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/runtime/finding"
	"github.com/rockpool/rockpool/test/nomadtest"
)

// examine returns what was found, by name, of a configuration that was changed.
func examine(t *testing.T, n *nomadtest.Nomad, change func(*Config)) map[string]finding.Finding {
	t.Helper()
	c := config(t, n, job.RawExec)
	change(&c)
	found, err := Examine(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]finding.Finding{}
	for _, f := range found {
		all[f.Name] = f
	}
	return all
}

func TestExamineSaysWhatIsMissing(t *testing.T) {
	n := raw.Nomad(t)
	good := examine(t, n, func(*Config) {})
	for _, name := range []string{"nomad", "policy", "template", "nodes"} {
		if f, there := good[name]; !there || f.Status != finding.OK || f.Advice != "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
	// The token may not look at Nomad's own settings.
	if f := good["connections"]; f.Advice == "" || f.Status != finding.Warn {
		t.Errorf("%+v", f)
	}
	for _, test := range []struct {
		name, says string
		change     func(*Config)
	}{
		{"nomad", "connection refused", func(c *Config) { c.Connection.Address = "https://127.0.0.1:1" }},
		{"nomad", "certificate", func(c *Config) { c.Connection.ClientCert, c.Connection.ClientKey = "", "" }},
		{"policy", "list jobs", func(c *Config) { c.Connection.Token = "00000000-0000-0000-0000-000000000000" }},
		{"nodes", "driver docker", func(c *Config) { c.Jobs.Driver = job.Docker }},
		{"template", "batch job", func(c *Config) {
			c.Jobs.Template = []byte(`{"Type": "service", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "raw_exec"}]}]}`)
		}},
		{"memory", "oversubscription", func(c *Config) { c.Jobs.MemoryReserve, c.Connection.Token = 0.5, n.ManagementToken() }},
		{"connections", "5000", func(c *Config) { c.Bridges, c.Connection.Calls, c.Connection.Token = 4984, 16, n.ManagementToken() }},
	} {
		f := examine(t, n, test.change)[test.name]
		if f.Status != finding.Fail || f.Advice == "" || !strings.Contains(f.Message, test.says) {
			t.Errorf("%s: %+v", test.name, f)
		}
	}
	if f := examine(t, n, func(c *Config) { c.Connection.Token = n.ManagementToken() })["connections"]; f.Advice != "" {
		t.Errorf("%+v", f)
	}
}

// Docker's clients allow no volumes unless they are told to.
func TestExamineSaysWhichWorkspaceWorks(t *testing.T) {
	t.Parallel()
	n := container.Nomad(t)
	for workspace, want := range map[string]finding.Status{job.WorkspaceTmpfs: finding.Warn, job.WorkspaceVolume: finding.Fail} {
		f := examine(t, n, func(c *Config) { c.Jobs.Driver, c.Jobs.Workspace = job.Docker, workspace })["workspace"]
		if f.Status != want || !strings.Contains(f.Advice, "volumes { enabled = true }") {
			t.Errorf("%s: %+v", workspace, f)
		}
	}
}
