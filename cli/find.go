package cli

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/rockpool/rockpool/cli/connection"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
)

type runnerFind struct {
	connection.Flags
	JSON       bool   `name:"json" help:"Print what the server found as JSON, with the API's names."`
	Name       string `placeholder:"PATTERN" help:"Only entries with this name: * is any text, ? one character, [a-z] one of a range."`
	Containing string `placeholder:"TEXT" help:"The lines that contain this text, with their numbers."`
	Max        int    `default:"1000" placeholder:"N" help:"At most this many, 1 to 1000. (${default})"`
	Place      string `arg:"" name:"runner[:path]" complete:"runner" help:"The runner; with a path, a directory there. Default: /workspace."`
}

// Help is what its --help says beyond the flags.
func (runnerFind) Help() string {
	return `Searches inside the runner. It follows no links, and leaves out binary files. A search ends at 1000 matches, 65536 entries, 64 MiB that were read, or after 5 seconds: stderr says so.

    rockpool runner find "$id" --name '*.py'
    rockpool runner find "$id" --containing main
    rockpool runner find "$id:/tmp" --name '*.log' --containing error

Exit codes:
    0    something was found
    1    nothing was found
    125  the search failed`
}

// codeNothing is the exit code of a search that finds nothing, as grep has it.
const codeNothing = 1

// Run searches files.
func (c *runnerFind) Run(s Streams) error {
	ctx, stop := stoppable()
	defer stop()
	if c.Name == "" && c.Containing == "" {
		return errors.New("give --name or --containing: what to find")
	}
	server, err := c.Patient()
	if err != nil {
		return err
	}
	runner, dir := directory(c.Place)
	out, err := client.SearchFiles(ctx, server, runner, unless(dir), unless(c.Name), unless(c.Containing), &c.Max)
	if err != nil {
		return err
	}
	if out.Runner == nil {
		return noRunner(runner)
	}
	found := out.Runner.SearchFiles
	if c.JSON {
		return output.Format{JSON: true}.Print(s.Out, found, output.Table{})
	}
	for _, m := range found.Matches {
		line := path.Join(dir, m.File.Path)
		if m.Line != nil {
			line = fmt.Sprintf("%s:%d:%s", line, *m.Line, told(m.Text))
		}
		if _, err := fmt.Fprintln(s.Out, output.Plain(line)); err != nil {
			return err
		}
	}
	if found.Limit != nil {
		_, _ = fmt.Fprintf(s.Err, "rockpool: the search ended early, at its limit of %s: search a directory below, or with a narrower --name\n", strings.ToLower(string(*found.Limit)))
	}
	if len(found.Matches) == 0 {
		return ExitError(codeNothing)
	}
	return nil
}

// directory splits RUNNER or RUNNER:PATH.
func directory(text string) (runner, path string) {
	runner, path, _ = strings.Cut(text, ":")
	return runner, path
}

func noRunner(id string) error { return fmt.Errorf("runner %s is gone, or never was", id) }

type runnerWatch struct {
	connection.Flags
	JSON      bool   `name:"json" help:"Print each change as a JSON object on a line, with the API's names."`
	Recursive bool   `short:"r" help:"Changes in directories below, too."`
	Place     string `arg:"" name:"runner[:path]" complete:"runner" help:"The runner; with a path, a directory there. Default: /workspace."`
}

// Help is what its --help says beyond the flags.
func (runnerWatch) Help() string {
	return `Prints CREATED, CHANGED or REMOVED, and a path, until the runner is gone or Ctrl-C. What is renamed is REMOVED and CREATED. BEGAN comes first: from then on all is reported. LOST says that there were too many changes: list the directory again. A watch doesn't keep the runner alive.

    rockpool runner watch "$id" -r
    rockpool runner watch "$id:/tmp" --json

Exit codes:
    125  the runner or the directory went, or the connection broke
    130  it was interrupted`
}

// Run prints changes.
func (c *runnerWatch) Run(s Streams) error {
	ctx, stop := stoppable()
	defer stop()
	server, err := c.Client()
	if err != nil {
		return err
	}
	runner, dir := directory(c.Place)
	err = server.FollowFiles(ctx, runner, dir, c.Recursive, func(change client.FileChange) error {
		if c.JSON {
			return output.JSONLine(s.Out, change)
		}
		line := string(change.Type)
		if change.Path != nil {
			line += " " + path.Join(dir, *change.Path)
		}
		_, err := fmt.Fprintln(s.Out, output.Plain(line))
		return err
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err == nil {
		err = errors.New("the server ended the subscription")
	}
	return err
}
