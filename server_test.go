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

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/config/quantity"
)

// parseServe returns the settings that a command line, variables and a file give together. It reads
// no file of this machine.
func parseServe(t *testing.T, arguments ...string) (serveCommand, error) {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	var all commands
	parser, err := kong.New(&all, kong.Vars{"version": "x"}, kong.Bind(command.Streams{}), quantity.Flags())
	if err != nil {
		t.Fatal(err)
	}
	_, err = parser.Parse(append([]string{"serve"}, arguments...))
	return all.Serve, err
}

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
	want := config.Default()
	want.Listen, want.LogLevel, want.MaxBody, want.NoIntrospection = "127.0.0.1:1111", "warn", 8192, true
	want.AllowedHosts = []string{"a.example.org", "b.example.org"}
	if diff := cmp.Diff(want, got.Config, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	// The same for a flag with a variable, and for a flag that repeats the default.
	got, err = parseServe(t, "--config", path, "--no-introspection=false", "--log-level=info")
	if err != nil || got.NoIntrospection || got.LogLevel != "info" || got.MaxBody != 4096 {
		t.Errorf("%+v %v", got.Config, err)
	}
}

func TestNamedFileIsRead(t *testing.T) {
	named := writeSettings(t, "parallel: 9\n")
	t.Setenv("ROCKPOOL_CONFIG", named)
	if got, err := parseServe(t); err != nil || got.Parallel != 9 || got.settings.Path != named {
		t.Errorf("%+v %v", got.Config, err)
	}
	if _, err := parseServe(t, "--config", "/nonesuch.yaml"); err == nil || !strings.Contains(err.Error(), "/nonesuch.yaml") {
		t.Errorf("a missing file: %v", err)
	}
}

func TestWrongSettingsInAFileAreNamed(t *testing.T) {
	for _, test := range []struct{ text, says string }{
		{"listen: 127.0.0.1:0\nlisten-on: x\n", `config.yaml:2: unknown setting "listen-on"`},
		{"lisen: 127.0.0.1:0\n", "did you mean listen?"},
		{"colour: red\n", "`rockpool serve --help`"},
		{"\n\nparallel: many\n", "config.yaml:3: parallel "},
		{"parallel: 1.5\n", "config.yaml:1: parallel "},
		{"memory-overcommit: twice\n", "config.yaml:1: memory-overcommit "},
		{"alert-threshold: half\n", "config.yaml:1: alert-threshold "},
		{"no-introspection: 1\n", "config.yaml:1: no-introspection "},
		{"no-introspection: yes\n", "config.yaml:1: no-introspection "},
		{"listen: 8080\n", "config.yaml:1: listen "},
		{"listen: [a]\n", "config.yaml:1: listen "},
		{"allowed-hosts: a\n", "config.yaml:1: allowed-hosts "},
		{"allowed-hosts: [1]\n", "config.yaml:1: allowed-hosts "},
		{"allowed-hosts:\n  a: b\n", "config.yaml:1: allowed-hosts "},
		{"config: x\n", `unknown setting "config"`},
		{"help: true\n", `unknown setting "help"`},
		{"- listen\n", "line 1"},
		{"just text\n", "line 1"},
		{"listen: a\nlisten: b\n", "listen"},
		{"listen: {\n", "config.yaml"},
		{"parallel: 1\n---\nparallel: 2\n", "a single YAML document"},
		// Of the right kind, but out of range: Check refuses it and names the place.
		{"data: /tmp/x\n\nparallel: 65\n", `config.yaml:3: parallel is "65", but must be 0 to 64`},
		{"log-format: xml\n", `config.yaml:1: log-format is "xml"`},
		{"listen: 0.0.0.0:80\n", `config.yaml:1: listen is "0.0.0.0:80"`},
	} {
		var out, errs bytes.Buffer
		path := writeSettings(t, test.text)
		if code := execute([]string{"serve", "--config", path}, nil, &out, &errs); code == 0 || !strings.Contains(errs.String(), test.says) {
			t.Errorf("%q: got %d %q, want %q", test.text, code, errs.String(), test.says)
		}
	}
	// The error doesn't name the file if the value comes from elsewhere.
	path := writeSettings(t, "log-format: json\n")
	var out, errs bytes.Buffer
	t.Setenv("ROCKPOOL_LOG_FORMAT", "xml")
	if execute([]string{"serve", "--config", path}, nil, &out, &errs); !strings.Contains(errs.String(), "ROCKPOOL_LOG_FORMAT is") {
		t.Errorf("%q", errs.String())
	}
}

// TestServeNamesThePlaceOfAWrongSetting, before it opens anything.
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
		{[]string{"serve", "--log-format=json", "--stop-within=-1s"}, `--stop-within is "-1s", but must be 0s to 1h`},
		{[]string{"serve", "--lisen", "x"}, "--lisen"},
		{[]string{"serv"}, "serv"},
	} {
		var out, errs bytes.Buffer
		if code := execute(test.arguments, nil, &out, &errs); code == 0 || !strings.Contains(errs.String(), test.says) {
			t.Errorf("%v: got %d %q, want %q", test.arguments, code, errs.String(), test.says)
		}
	}
}

func TestHelpNamesEveryVariable(t *testing.T) {
	var out, errs bytes.Buffer
	if code := execute([]string{"serve", "--help"}, nil, &out, &errs); code != 0 {
		t.Fatalf("%d %s", code, errs.String())
	}
	for _, name := range []string{"LISTEN", "DATA", "ALLOWED_HOSTS", "ALLOWED_ORIGINS", "MAX_BODY", "ALERT_THRESHOLD", "ALERT_TIMEOUT", "PARALLEL", "CGROUP_PARENT", "SANDBOX_HELPER", "LOG_LEVEL", "LOG_FORMAT"} {
		if !strings.Contains(out.String(), "$ROCKPOOL_"+name) {
			t.Errorf("%s isn't in the help", name)
		}
	}
	if strings.Contains(out.String(), "${") {
		t.Errorf("something wasn't filled in: %s", out.String())
	}
}

// TestUnitsCommandLines: commands know the flags that systemd's units pass, and a server stops
// before systemd kills it.
func TestUnitsCommandLines(t *testing.T) {
	for _, name := range []string{"rockpool.service", "rockpool-helper.service", "rockpool-unprivileged.conf"} {
		text, err := os.ReadFile(filepath.Join("packaging", name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			value, is := strings.CutPrefix(strings.TrimSpace(line), "ExecStart=")
			program := strings.Fields(value)
			if !is || len(program) == 0 {
				continue
			}
			if program[1] != "serve" {
				if _, err := parseHelper(t, program[2:]...); err != nil {
					t.Errorf("%s: %s: %v", name, line, err)
				}
				continue
			}
			command, err := parseServe(t, program[2:]...)
			if err != nil {
				t.Errorf("%s: %s: %v", name, line, err)
			}
			_, after, is := strings.Cut(string(text), "\nTimeoutStopSec=")
			if !is {
				continue // it belongs to the other file
			}
			patience, err := time.ParseDuration(strings.Fields(after)[0])
			if err != nil || command.StopWithin >= 5*time.Second || patience < command.StopWithin+time.Second {
				t.Errorf("it has %v to stop, and may take %v (%v)", patience, command.StopWithin, err)
			}
		}
	}
}

// TestSettingsAcceptUnitsAndNameTheirRange: times and sizes have units, and the error for one out
// of range names the allowed range.
func TestSettingsAcceptUnitsAndNameTheirRange(t *testing.T) {
	path := writeSettings(t, "keep-executions: 7d\nmax-body: 8MiB\nstop-within: 5\ndisk-read: 64\nnomad-direct-timeout: 2s\n")
	t.Setenv("ROCKPOOL_KEEP_AUDIT", "365d")
	got, err := parseServe(t, "--config", path, "--image-cache-bytes", "1G")
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.KeepExecutions, want.MaxBody, want.StopWithin, want.Disk.Read = 7*86400, 8<<20, 5*time.Second, 64
	want.Nomad.DirectTimeout, want.KeepAudit, want.Images.CacheBytes = 2000, 365*86400, 1<<30
	if diff := cmp.Diff(want, got.Config, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	for text, says := range map[string]string{
		"keep-executions: soon": "config.yaml:1: keep-executions ",
		"max-body: [1]":         "config.yaml:1: max-body ", "max-body: 1.5": "config.yaml:1: max-body ", "stop-within: true": "config.yaml:1: stop-within ",
	} {
		if _, err := parseServe(t, "--config", writeSettings(t, text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q in it", text, err, says)
		}
	}
	seen := 0
	parser, err := kong.New(&config.Config{}, quantity.Flags())
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range parser.Model.Flags {
		if !quantity.Is(flag.Value) {
			if p := flag.PlaceHolder; p == "TIME" || p == "SIZE" {
				t.Errorf("--%s is %s, but no quantity", flag.Name, p)
			}
			continue
		}
		if seen++; flag.Name == "nomad-direct-timeout" { // package nomad defines its range
			continue
		}
		for _, value := range []string{"-1", "99999999999999999999"} {
			arguments := []string{"--" + flag.Name + "=" + value}
			if strings.HasPrefix(flag.Name, "nomad-") {
				arguments = append(arguments, "--cluster=nomad", "--advertise-url=http://127.0.0.1:8080")
			}
			if strings.HasPrefix(flag.Name, "oidc-") {
				arguments = append(arguments, "--oidc-issuer=http://127.0.0.1:1", "--oidc-client-id=x", "--oidc-redirect-url=http://127.0.0.1:8080/auth/callback", "--oidc-roles=a=ADMIN")
			}
			parsed, err := parseServe(t, arguments...)
			if err == nil {
				err = parsed.Check()
			}
			if err == nil || !strings.Contains(err.Error(), "--"+flag.Name) {
				t.Errorf("%q: %v", arguments, err)
			}
		}
	}
	if seen < 16 {
		t.Errorf("only %d settings are times or sizes", seen)
	}
}

func TestVersion(t *testing.T) {
	for _, asked := range []string{"--version", "version"} {
		var out, errs bytes.Buffer
		if code := execute([]string{asked}, nil, &out, &errs); code != 0 || !strings.HasPrefix(out.String(), "rockpool ") || strings.Count(out.String(), "\n") != 1 || errs.Len() > 0 {
			t.Errorf("%s: %d %q %q", asked, code, out.String(), errs.String())
		}
	}
}

func TestHelpSaysWhereFlagsGo(t *testing.T) {
	var out, errs bytes.Buffer
	if code := execute([]string{"--help"}, nil, &out, &errs); code != 0 || !strings.Contains(out.String(), "Flags come after the command.") || !strings.Contains(out.String(), "ROCKPOOL_TOKEN") {
		t.Errorf("%d %q %q", code, out.String(), errs.String())
	}
}
