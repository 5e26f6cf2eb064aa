package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rockpool/rockpool/cli"
)

// parseServe returns the settings that a command line, the variables and the
// file come to. No file of this machine is looked at.
func parseServe(t *testing.T, arguments ...string) (serveCommand, error) {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	var all commands
	parser, err := kong.New(&all, kong.Vars{"version": "x"}, kong.Bind(cli.Streams{}))
	if err != nil {
		t.Fatal(err)
	}
	_, err = parser.Parse(append([]string{"serve"}, arguments...))
	return all.Serve, err
}

var unexported = cmpopts.IgnoreUnexported(Config{}, NomadConfig{}, RuntimesConfig{})

func writeSettings(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSettingsComeFromFlagThenVariableThenFileThenDefault(t *testing.T) {
	path := writeSettings(t, `
listen: 127.0.0.1:1111
log-level: debug
max-body: 2048
no-introspection: true
allowed-hosts: [a.example.org, "b.example.org"]
parallel:
`)
	t.Setenv("ROCKPOOL_LOG_LEVEL", "warn")
	t.Setenv("ROCKPOOL_MAX_BODY", "4096")
	got, err := parseServe(t, "--config", path, "--max-body", "8192")
	if err != nil {
		t.Fatal(err)
	}
	want := Config{Listen: "127.0.0.1:1111", LogLevel: "warn", MaxBody: 8192, NoIntrospection: true,
		AllowedHosts: []string{"a.example.org", "b.example.org"}, CPUOvercommit: 250, MemoryOvercommit: 8, AlertThreshold: 0.5, AlertTimeout: 60, KeepExecutions: 604800, KeepBytes: 10 << 30, KeepEvaluations: 300, KeepAllocations: 300, CgroupParent: "rockpool", OnStop: "keep", StopWithin: 4500 * time.Millisecond, LogFormat: "console", Cluster: "local",
		Disk:     DiskConfig{Read: 128},
		Images:   ImagesConfig{CacheBytes: 20 << 30, Bytes: 10 << 30, Timeout: 1800, Stall: 60},
		Networks: NetworkConfig{OfferConfig: OfferConfig{Pool4: "10.213.0.0/16", Pool6: "fd52:6f63:6b70:6f6f::/64", Bandwidth: 100}, Address: "127.0.0.1", Ports: "20000-29999"},
		Nomad:    NomadConfig{Prefix: "rockpool", Driver: "docker", NoNetworkMode: "none", MemoryReserve: 1, Priority: 50, Bridges: 80, Calls: 16, LockTTL: 10}}
	if diff := cmp.Diff(want, got.Config, cmpopts.EquateEmpty(), unexported); diff != "" {
		t.Error(diff)
	}
	// The same for a flag that has a variable, and a flag that says what is the default.
	got, err = parseServe(t, "--config", path, "--no-introspection=false", "--log-level=info")
	if err != nil || got.NoIntrospection || got.LogLevel != "info" || got.MaxBody != 4096 {
		t.Errorf("%+v %v", got.Config, err)
	}
}

func TestSettingsFileIsFound(t *testing.T) {
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, "rockpool"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "rockpool", "config.yaml"), []byte("parallel: 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CONFIG_HOME", home)
	if got, err := readSettings("", serveFlags(t)); err != nil || got.values["parallel"].value != "7" || got.path == "" {
		t.Errorf("%+v %v", got, err)
	}
	named := writeSettings(t, "parallel: 9\n")
	t.Setenv("ROCKPOOL_CONFIG", named)
	if got, err := parseServe(t); err != nil || got.Parallel != 9 || got.settings.path != named {
		t.Errorf("%+v %v", got.Config, err)
	}
	if _, err := parseServe(t, "--config", "/nonesuch.yaml"); err == nil || !strings.Contains(err.Error(), "/nonesuch.yaml") {
		t.Errorf("a file that isn't there: %v", err)
	}
}

func TestWrongSettingsInAFileAreNamed(t *testing.T) {
	for _, test := range []struct{ text, says string }{
		{"listen: 127.0.0.1:0\nlisten-on: x\n", `config.yaml:2: there is no setting "listen-on"; there are listen, data,`},
		{"\n\nparallel: many\n", "config.yaml:3: parallel must be a whole number, not many"},
		{"parallel: 1.5\n", "config.yaml:1: parallel must be a whole number"},
		{"memory-overcommit: twice\n", "config.yaml:1: memory-overcommit must be a number, not twice"},
		{"alert-threshold: half\n", "config.yaml:1: alert-threshold must be a number, not half"},
		{"no-introspection: 1\n", "config.yaml:1: no-introspection must be true or false"},
		{"no-introspection: yes\n", "config.yaml:1: no-introspection must be true or false"},
		{"listen: 8080\n", "config.yaml:1: listen must be text"},
		{"listen: [a]\n", "config.yaml:1: listen must be text"},
		{"allowed-hosts: a\n", "config.yaml:1: allowed-hosts must be a list"},
		{"allowed-hosts: [1]\n", "config.yaml:1: allowed-hosts must be a list, each of it text"},
		{"allowed-hosts:\n  a: b\n", "config.yaml:1: allowed-hosts must be a list"},
		{"config: x\n", `no setting "config"`},
		{"help: true\n", `no setting "help"`},
		{"- listen\n", "line 1"},
		{"just text\n", "line 1"},
		{"listen: a\nlisten: b\n", "listen"},
		{"listen: {\n", "config.yaml"},
		{"parallel: 1\n---\nparallel: 2\n", "one document"},
		// Of the right kind, but out of range: refused by Check, with the place.
		{"data: /tmp/x\n\nparallel: 65\n", `config.yaml:3: parallel is "65", but must be 0 to 64`},
		{"log-format: xml\n", `config.yaml:1: log-format is "xml"`},
		{"listen: 0.0.0.0:80\n", `config.yaml:1: listen is "0.0.0.0:80"`},
	} {
		var out, errs bytes.Buffer
		path := writeSettings(t, test.text)
		if code := execute([]string{"serve", "--config", path}, nil, &out, &errs); code == 0 || !strings.Contains(errs.String(), test.says) {
			t.Errorf("%q: %d %q", test.text, code, errs.String())
		}
	}
	// Elsewhere than in the file, it isn't the file that is named.
	path := writeSettings(t, "log-format: json\n")
	var out, errs bytes.Buffer
	t.Setenv("ROCKPOOL_LOG_FORMAT", "xml")
	if execute([]string{"serve", "--config", path}, nil, &out, &errs); !strings.Contains(errs.String(), "ROCKPOOL_LOG_FORMAT is") {
		t.Errorf("%q", errs.String())
	}
}

func TestSettingsFileMayBeEmpty(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n", "null\n", "{}\n"} {
		if got, err := parseSettings("x", []byte(text), serveFlags(t)); err != nil || len(got.values) != 0 {
			t.Errorf("%q: %+v %v", text, got, err)
		}
	}
}

func serveFlags(t *testing.T) []*kong.Flag {
	t.Helper()
	var config serveCommand
	parser, err := kong.New(&config)
	if err != nil {
		t.Fatal(err)
	}
	return parser.Model.Flags
}

// The example has every setting, each with its default.
func TestExampleOfSettingsIsComplete(t *testing.T) {
	const path = "docs/config.example.yaml"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flags := serveFlags(t)
	file, err := parseSettings(path, text, flags)
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range flags {
		if _, there := file.values[flag.Name]; !there && !flag.Hidden && flag.Name != "help" && flag.Name != "config" {
			t.Errorf("%s has no %s", path, flag.Name)
		}
	}
	defaults, err := parseServe(t)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseServe(t, "--config", path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(defaults.Config, got.Config, cmpopts.EquateEmpty(), unexported, cmpopts.IgnoreFields(Config{}, "Data")); diff != "" {
		t.Error(diff)
	}
	if _, err := privateConfig(path); err != nil { // what the other commands read of it
		t.Error(err)
	}
}

func FuzzSettings(f *testing.F) {
	example, err := os.ReadFile("docs/config.example.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(example))
	for _, text := range []string{"a: &a [*a]\n", "listen: !!binary x\n", "<<: {listen: a}\n", "? {a: b}\n: c\n", "listen: |\n  x\n", "\x00"} {
		f.Add(text)
	}
	var config serveCommand
	parser, err := kong.New(&config)
	if err != nil {
		f.Fatal(err)
	}
	flags := parser.Model.Flags
	f.Fuzz(func(t *testing.T, text string) {
		_, err := parseSettings("x", []byte(text), flags)
		if err != nil && !strings.Contains(err.Error(), "x") {
			t.Error(err)
		}
	})
}
