package cli

import (
	"context"
	"strings"

	"github.com/rockpool/rockpool/cli/connection"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
)

type languagesCommand struct {
	connection.Flags
	output.Format
	Versions bool `help:"Show the version of each language, too. The server determines it once, in a runner of the environment."`
}

// A listedLanguage is a language with its version.
type listedLanguage struct {
	client.Language
	Version *string `json:"version,omitempty"` // nil: unknown, or not asked for
}

// Run lists the languages.
func (c *languagesCommand) Run(ctx context.Context, s Streams, server client.Sender) error {
	all, err := c.list(ctx, server)
	if err != nil {
		return err
	}
	t := output.Table{Head: []string{"LANGUAGE", "NAME", "FILES", "ENVIRONMENT"}}
	if c.Versions {
		t.Head = append(t.Head, "VERSION")
	}
	for _, l := range all {
		row := []string{l.Id, l.Name, strings.Join(l.Extensions, " "), dash(l.EnvironmentId)}
		if c.Versions {
			row = append(row, dash(l.Version))
		}
		t.Rows = append(t.Rows, row)
	}
	return c.List(s.Out, s.Err, all, t, "no languages")
}

// list requests the languages, with their versions if the caller wants them.
func (c *languagesCommand) list(ctx context.Context, server client.Sender) ([]listedLanguage, error) {
	all := []listedLanguage{}
	if c.Versions {
		out, err := client.GetLanguagesWithVersions(ctx, server)
		if err != nil {
			return nil, err
		}
		for _, l := range out.Languages {
			all = append(all, listedLanguage{l.Language, l.Version})
		}
		return all, nil
	}
	out, err := client.GetLanguages(ctx, server)
	if err != nil {
		return nil, err
	}
	for _, l := range out.Languages {
		all = append(all, listedLanguage{Language: l})
	}
	return all, nil
}

// dash returns the value for a table's cell, and "-" for nil.
func dash(value *string) string {
	if value == nil {
		return "-"
	}
	return *value
}
