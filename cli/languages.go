package cli

import (
	"strings"

	"github.com/rockpool/rockpool/cli/connection"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
)

type languagesCommand struct {
	connection.Flags
	output.Format
	Versions bool `help:"Show the version of each, too. It is measured once, in a runner of each environment."`
}

// Help is what its --help says beyond the flags.
func (languagesCommand) Help() string {
	return `Lists the languages that the server can build and run, the endings of their files, and the environment in which ` + "`rockpool run FILE`" + ` runs them.

    rockpool languages
    rockpool languages --versions
    rockpool languages --json | jq -r '.[] | select(.environmentId).id'`
}

// A listedLanguage is a language with its version.
type listedLanguage struct {
	client.Language
	Version *string `json:"version,omitempty"` // nil: unknown, or not asked for
}

// Run lists the languages.
func (c *languagesCommand) Run(s Streams) error {
	ctx, stop := stoppable()
	defer stop()
	server, err := c.Patient()
	if err != nil {
		return err
	}
	out, err := client.GetLanguages(ctx, server)
	if err != nil {
		return err
	}
	versions := map[string]*string{}
	if c.Versions {
		measured, err := client.GetLanguageVersions(ctx, server)
		if err != nil {
			return err
		}
		for _, l := range measured.Languages {
			versions[l.Id] = l.Version
		}
	}
	all := []listedLanguage{}
	t := output.Table{Head: []string{"LANGUAGE", "NAME", "FILES", "ENVIRONMENT"}}
	if c.Versions {
		t.Head = append(t.Head, "VERSION")
	}
	for _, l := range out.Languages {
		all = append(all, listedLanguage{l, versions[l.Id]})
		row := []string{l.Id, l.Name, strings.Join(l.Extensions, " "), dash(l.EnvironmentId)}
		if c.Versions {
			row = append(row, dash(versions[l.Id]))
		}
		t.Rows = append(t.Rows, row)
	}
	return c.List(s.Out, s.Err, all, t, "no languages")
}

func dash(value *string) string {
	if value == nil {
		return "-"
	}
	return *value
}
