package image

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime/language"
)

func TestInstallNamesThePackagesOfTheLanguages(t *testing.T) {
	recipes := language.Of(
		language.Recipe{ID: "one", Aliases: []string{"first"}, Debian: []string{"one-bin", "shared"}, Limits: language.Limits{MemoryMiB: 512}},
		language.Recipe{ID: "two", Debian: []string{"shared"}, Limits: language.Limits{MemoryMiB: 256, Processes: 99}},
		language.Recipe{ID: "none"},
	)
	c := buildCommand{Name: "x", Release: "bookworm", Languages: []string{"first", "two"}, Packages: []string{"git"}}
	got, hooks, flags, err := c.install(recipes)
	want := slices.Sorted(slices.Values(slices.Concat(base, []string{"git", "one-bin", "shared"})))
	if err != nil || !slices.Equal(got, want) || len(hooks) > 0 || flags != " --memory 512MiB --processes 99" {
		t.Errorf("%q %q %v, want %q", got, flags, err, want)
	}
	for id, part := range map[string]string{"none": "packages", "onee": "did you mean one?", "xyz": "`rockpool image list"} {
		c.Languages = []string{id}
		if _, _, _, err := c.install(recipes); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: got %v, want %q", id, err, part)
		}
	}
}

// TestOptionsAreNoArguments: a name can't become an option of mmdebstrap or a pattern of apt.
func TestOptionsAreNoArguments(t *testing.T) {
	whole := buildCommand{Name: "x", Release: "bookworm", Packages: []string{"git"}}
	if err := whole.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*buildCommand){
		"a name with a directory": func(c *buildCommand) { c.Name = "../x" },
		"a hidden name":           func(c *buildCommand) { c.Name = ".x" },
		"a pattern":               func(c *buildCommand) { c.Packages = []string{"?essential"} },
		"an option":               func(c *buildCommand) { c.Packages = []string{"--x"} },
		"a release with an option": func(c *buildCommand) {
			c.Release = "-x"
		},
		"a mirror with an option": func(c *buildCommand) { c.Mirror = []string{"--setup-hook=id"} },
		"nothing":                 func(c *buildCommand) { c.Packages = nil },
	} {
		c := whole
		if change(&c); c.Validate() == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if got := quoted("it's"); got != `'it'\''s'` {
		t.Errorf("%s", got)
	}
}

// TestTheCacheIsTheCallers: scripts of its packages run as the caller.
func TestTheCacheIsTheCallers(t *testing.T) {
	dir := t.TempDir()
	c := buildCommand{Cache: dir, Release: "bookworm"}
	for mode, accepted := range map[os.FileMode]bool{0o755: true, 0o775: false, 0o757: false} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := c.cache(); (err == nil) != accepted {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
}

func TestProgressShowsStepsAndKeepsErrors(t *testing.T) {
	var out bytes.Buffer
	p := progress{out: &out, tick: time.NewTicker(silence)}
	stop := p.watch()
	for _, text := range []string{"I: automatically chosen mode: root\nI: downl", "oading packages with apt...\nReading\r100%\nE: Unable to locate", " package x\n"} {
		if _, err := p.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	if out.String() != "rockpool: downloading packages with apt...\n" || p.tail() != "E: Unable to locate package x" {
		t.Errorf("%q, %q", out.String(), p.tail())
	}
}
