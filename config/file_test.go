package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rockpool/rockpool/config/quantity"
)

func TestSettingsFileIsFound(t *testing.T) {
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, "rockpool"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "rockpool", "config.yaml"), []byte("parallel: 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CONFIG_HOME", home)
	if got, err := ReadFile("", flags(t)); err != nil || got.values["parallel"].value != "7" || got.Path == "" {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := ReadFile("/nonesuch.yaml", flags(t)); err == nil || !strings.Contains(err.Error(), "/nonesuch.yaml") {
		t.Errorf("a file that isn't there: %v", err)
	}
}

func TestSettingsFileMayBeEmpty(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n", "null\n", "{}\n"} {
		if got, err := parseFile("x", []byte(text), flags(t)); err != nil || len(got.values) != 0 {
			t.Errorf("%q: %+v %v", text, got, err)
		}
	}
}

func flags(t *testing.T) []*kong.Flag {
	t.Helper()
	var c Config
	parser, err := kong.New(&c, quantity.Flags())
	if err != nil {
		t.Fatal(err)
	}
	return parser.Model.Flags
}

// The example has every setting, each with its default.
func TestExampleOfSettingsIsComplete(t *testing.T) {
	const path = "../docs/config.example.yaml"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := flags(t)
	file, err := parseFile(path, text, all)
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range all {
		if _, there := file.values[flag.Name]; !there && !flag.Hidden && flag.Name != "help" && flag.Name != "config" {
			t.Errorf("%s has no %s", path, flag.Name)
		}
	}
	got, err := Read(path, func(*Config, func(string) bool) {})
	if err != nil {
		t.Fatal(err)
	}
	defaults := Default()
	if err := defaults.Check(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(defaults, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(Config{}, "Data", "Recipes"), cmpopts.IgnoreFields(Images{}, "Files")); diff != "" {
		t.Error(diff)
	}
	if _, err := Private(path); err != nil { // what the other commands read of it
		t.Error(err)
	}
}

func FuzzSettings(f *testing.F) {
	example, err := os.ReadFile("../docs/config.example.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(example))
	for _, text := range []string{"a: &a [*a]\n", "listen: !!binary x\n", "<<: {listen: a}\n", "? {a: b}\n: c\n", "listen: |\n  x\n", "\x00"} {
		f.Add(text)
	}
	var c Config
	parser, err := kong.New(&c, quantity.Flags())
	if err != nil {
		f.Fatal(err)
	}
	flags := parser.Model.Flags
	f.Fuzz(func(t *testing.T, text string) {
		_, err := parseFile("x", []byte(text), flags)
		if err != nil && !strings.Contains(err.Error(), "x") {
			t.Error(err)
		}
	})
}
