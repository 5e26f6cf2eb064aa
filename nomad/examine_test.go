package nomad

import (
	"strings"
	"testing"

	"github.com/rockpool/rockpool/test/nomadtest"
)

// examine returns what was found, by name, of a configuration that was changed.
func examine(t *testing.T, n *nomadtest.Nomad, change func(*Config)) map[string]Finding {
	t.Helper()
	c := config(t, n, RawExec)
	change(&c)
	found, err := Examine(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]Finding{}
	for _, f := range found {
		all[f.Name] = f
	}
	return all
}

func TestExamineSaysWhatIsMissing(t *testing.T) {
	n := raw.Nomad(t)
	good := examine(t, n, func(*Config) {})
	for _, name := range []string{"nomad", "policy", "template", "nodes"} {
		if f, there := good[name]; !there || f.Fails || f.Advice != "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
	// The token may not look at Nomad's own settings.
	if f := good["connections"]; f.Advice == "" || f.Fails {
		t.Errorf("%+v", f)
	}
	for _, test := range []struct {
		name, says string
		change     func(*Config)
	}{
		{"nomad", "connection refused", func(c *Config) { c.API.Address = "https://127.0.0.1:1" }},
		{"nomad", "certificate", func(c *Config) { c.API.ClientCert, c.API.ClientKey = "", "" }},
		{"policy", "list jobs", func(c *Config) { c.API.Token = "00000000-0000-0000-0000-000000000000" }},
		{"nodes", "driver docker", func(c *Config) { c.Driver = Docker }},
		{"template", "batch job", func(c *Config) {
			c.Template = []byte(strings.Replace(ownTemplate, `"Type": "batch"`, `"Type": "service"`, 1))
		}},
		{"memory", "oversubscription", func(c *Config) { c.MemoryReserve, c.API.Token = 0.5, n.ManagementToken() }},
		{"connections", "5000", func(c *Config) { c.Bridges, c.Calls, c.API.Token = 4984, 16, n.ManagementToken() }},
	} {
		f := examine(t, n, test.change)[test.name]
		if !f.Fails || f.Advice == "" || !strings.Contains(f.Message, test.says) {
			t.Errorf("%s: %+v", test.name, f)
		}
	}
	if f := examine(t, n, func(c *Config) { c.API.Token = n.ManagementToken() })["connections"]; f.Advice != "" {
		t.Errorf("%+v", f)
	}
}
