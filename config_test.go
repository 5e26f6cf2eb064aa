package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// valid is a configuration with nothing wrong.
func valid(t *testing.T) Config {
	return Config{Listen: "127.0.0.1:0", Data: t.TempDir(), MaxBody: 32 << 20, CgroupParent: "rockpool", LogLevel: "info", LogFormat: "console"}
}

func TestWrongSettingsAreNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		spoil func(*Config)
		says  string
	}{
		{"no port", func(c *Config) { c.Listen = "127.0.0.1" }, "--listen"},
		{"port out of range", func(c *Config) { c.Listen = "127.0.0.1:70000" }, "0 to 65535"},
		{"every address", func(c *Config) { c.Listen = ":8080" }, "access control"},
		{"another address", func(c *Config) { c.Listen = "192.0.2.1:8080" }, "access control"},
		{"IPv6 any", func(c *Config) { c.Listen = "[::]:8080" }, "access control"},
		{"body too small", func(c *Config) { c.MaxBody = 1 }, "--max-body"},
		{"parallel", func(c *Config) { c.Parallel = 65 }, "0 to 64"},
		{"cgroup elsewhere", func(c *Config) { c.CgroupParent = "system.slice" }, "--cgroup-parent"},
		{"any origin", func(c *Config) { c.AllowedOrigins = []string{"*"} }, "--allowed-origins"},
		{"origin with a path", func(c *Config) { c.AllowedOrigins = []string{"https://a.example.org/"} }, "--allowed-origins"},
		{"host with a port", func(c *Config) { c.AllowedHosts = []string{"a.example.org:80"} }, "--allowed-hosts"},
		{"log level", func(c *Config) { c.LogLevel = "loud" }, "debug, info, warn or error"},
		{"log level that ends the program", func(c *Config) { c.LogLevel = "panic" }, "debug, info, warn or error"},
		{"log format", func(c *Config) { c.LogFormat = "xml" }, "console or json"},
		{"data is a file", func(c *Config) { c.Data = file }, "--data"},
	} {
		c := valid(t)
		test.spoil(&c)
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestGoodSettingsAreTaken(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:0", "localhost:8080", "[::1]:8080", "127.8.9.10:80"} {
		c := valid(t)
		c.Listen = listen
		c.AllowedOrigins = []string{"https://admin.example.org", "http://[::1]:3000"}
		c.AllowedHosts = []string{"pool.example.org", "::1"}
		if err := c.Check(); err != nil {
			t.Errorf("%s: %v", listen, err)
		}
	}
}

func TestDataDirectoryFollowsXDG(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/state")
	c := valid(t)
	c.Data = ""
	if err := c.Check(); err != nil || c.Data != "/state/rockpool" {
		t.Errorf("%q %v", c.Data, err)
	}
}

// What is wrong is named with the place that it stands in, before anything is
// opened.
func TestServeNamesThePlaceOfAWrongSetting(t *testing.T) {
	t.Setenv("ROCKPOOL_LOG_FORMAT", "xml")
	for _, test := range []struct {
		arguments []string
		says      string
	}{
		{[]string{"serve"}, `ROCKPOOL_LOG_FORMAT is "xml"`},
		{[]string{"serve", "--log-format=yaml"}, `--log-format is "yaml"`},
		{[]string{"serve", "--listen", "0.0.0.0:80"}, `--listen is "0.0.0.0:80"`},
		{[]string{"serve", "--parallel", "many"}, "--parallel"},
		{[]string{"serve", "--lisen", "x"}, "--lisen"},
		{[]string{"serv"}, "serv"},
	} {
		var out, errs bytes.Buffer
		if code := execute(test.arguments, nil, &out, &errs); code == 0 || !strings.Contains(errs.String(), test.says) {
			t.Errorf("%v: %d %q", test.arguments, code, errs.String())
		}
	}
}

func TestHelpNamesEveryVariable(t *testing.T) {
	var out, errs bytes.Buffer
	if code := execute([]string{"serve", "--help"}, nil, &out, &errs); code != 0 {
		t.Fatalf("%d %s", code, errs.String())
	}
	for _, name := range []string{"LISTEN", "DATA", "ALLOWED_HOSTS", "ALLOWED_ORIGINS", "MAX_BODY", "PARALLEL", "CGROUP_PARENT", "LOG_LEVEL", "LOG_FORMAT"} {
		if !strings.Contains(out.String(), "$ROCKPOOL_"+name) {
			t.Errorf("%s isn't in the help", name)
		}
	}
	if strings.Contains(out.String(), "${") {
		t.Errorf("something wasn't filled in: %s", out.String())
	}
}
