package main

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/rockpool/rockpool/cli"
	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/config/quantity"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/server/metrics"
	"github.com/rockpool/rockpool/test/reference"
)

var update = flag.Bool("update", false, "write the generated parts of docs/reference and docs/config.example.yaml")

const exampleHead = `Settings of rockpool serve, each with its default. A flag of the same name overrides its variable (ROCKPOOL_LISTEN and so on), and a variable overrides this file.

The server reads the file that --config or ROCKPOOL_CONFIG names. Otherwise it reads the first of these that exists:
  $XDG_CONFIG_HOME/rockpool/config.yaml   (~/.config/rockpool/config.yaml)
  /etc/rockpool/config.yaml

A TIME is a number of seconds, or has units as in 90s, 1h30m, 2d. A SIZE is a number of bytes, or has a unit as in 512M, 1GiB (powers of 1024). disk-read counts MiB, nomad-direct-timeout milliseconds.

docs/reference/settings.md explains the same settings. This file is generated: make generate.`

// TestReferenceIsCurrent: the pages match the settings, commands, metrics and schema. `make
// generate` writes them.
func TestReferenceIsCurrent(t *testing.T) {
	all := newReference(t)
	for _, name := range []string{"settings", "cli", "errors", "graphql", "metrics"} {
		path := filepath.Join("docs/reference", name+".md")
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		filled, err := all.Fill(string(page))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		current(t, path, filled)
	}
	if err := all.Unused(); err != nil {
		t.Error(err)
	}
	current(t, "docs/config.example.yaml", all.Example(exampleHead))
}

// current compares a file with its generated content, or writes it.
func current(t *testing.T, path, want string) {
	t.Helper()
	is, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case string(is) == want:
	case *update:
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s isn't current: run make generate and commit the changes", path)
	}
}

func newReference(t *testing.T) *reference.Reference {
	t.Helper()
	settings, err := kong.New(&config.Config{}, quantity.Flags())
	if err != nil {
		t.Fatal(err)
	}
	commands, err := kong.New(&commands{}, kong.Name("rockpool"), quantity.Flags(), kong.Bind(command.Streams{}), cli.HelpTexts())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("schema.graphqls")
	if err != nil {
		t.Fatal(err)
	}
	schema, err := gqlparser.LoadSchema(&ast.Source{Name: "schema.graphqls", Input: string(text)})
	if err != nil {
		t.Fatal(err)
	}
	sources := reference.Sources{
		Settings: settings.Model.Flags, Commands: commands.Model, Schema: schema,
		Retryable: func(code string) bool { return runtime.Code(code).Retryable() },
	}
	for _, m := range metrics.All() {
		sources.Metrics = append(sources.Metrics, reference.Metric(m))
	}
	return reference.New(sources)
}
