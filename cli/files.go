package cli

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/cli/copying"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime/paths"
)

type runnerFind struct {
	command.Flags
	JSON       bool   `name:"json" help:"Print the result as JSON, with the API's names."`
	Name       string `placeholder:"PATTERN" help:"Only files and directories with this name: * is any text, ? one character, [a-z] one of a range."`
	Containing string `placeholder:"TEXT" help:"Print the lines that contain this text, with their numbers."`
	Max        int    `default:"1000" placeholder:"N" help:"Print at most N matches, 1 to 1000. (${default})"`
	Location   string `arg:"" name:"runner[:path]" complete:"runner" help:"The runner; with a path, a directory there. Default: /workspace."`
}

// codeNoMatch is the exit code of a search without a match, as in grep(1).
const codeNoMatch = 1

func (c *runnerFind) Run(ctx context.Context, s command.Streams, server client.Sender) error {
	if c.Name == "" && c.Containing == "" {
		return errors.New("say what to find: give --name, --containing, or both")
	}
	runner, dir := directory(c.Location)
	out, err := client.SearchFiles(ctx, server, runner, command.Optional(dir), command.Optional(paths.Given(c.Name)), command.Optional(c.Containing), &c.Max)
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
			line = fmt.Sprintf("%s:%d:%s", line, *m.Line, command.Text(m.Text))
		}
		if _, err := fmt.Fprintln(s.Out, output.Plain(line)); err != nil {
			return err
		}
	}
	if found.Limit != nil {
		_, _ = fmt.Fprintf(s.Err, "rockpool: the search ended early, at its limit of %s: search a subdirectory, or give a narrower --name\n", strings.ToLower(string(*found.Limit)))
	}
	if len(found.Matches) == 0 {
		return command.ExitError(codeNoMatch)
	}
	return nil
}

// directory splits RUNNER or RUNNER:PATH. It returns the path's text for the API.
func directory(text string) (runner, path string) {
	runner, path, _ = strings.Cut(text, ":")
	return runner, paths.Given(path)
}

// noRunner returns the error for a runner that the server doesn't know.
func noRunner(id string) error {
	return fmt.Errorf("runner %s doesn't exist or is gone: `rockpool runner list` lists the runners", id)
}

type runnerWatch struct {
	command.Flags
	JSON      bool   `name:"json" help:"Print one JSON object per change and line, with the API's names."`
	Recursive bool   `short:"r" help:"Include changes in subdirectories."`
	Location  string `arg:"" name:"runner[:path]" complete:"runner" help:"The runner; with a path, a directory there. Default: /workspace."`
}

// Run prints changes until the runner is gone or a signal arrives.
func (c *runnerWatch) Run(ctx context.Context, s command.Streams, server *client.Client) error {
	runner, dir := directory(c.Location)
	err := server.FollowFiles(ctx, runner, dir, c.Recursive, func(change client.FileChange) error {
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

type runnerCopy struct {
	command.Flags
	Recursive   bool   `short:"r" help:"Copy a directory with all its contents."`
	Protected   bool   `help:"Keep programs in the runner from changing and deleting the copied files, which then belong to root."`
	Quiet       bool   `short:"q" help:"Show no progress. Without a terminal, none is shown anyway."`
	Source      string `arg:"" name:"from" complete:"file" help:"A local path, RUNNER:PATH, or - for standard input."`
	Destination string `arg:"" name:"to" complete:"file" help:"RUNNER:PATH, a local path, or - for standard output. If it is an existing directory, the copy goes into it."`
}

func (c *runnerCopy) Run(ctx context.Context, s command.Streams, server *client.Client) (err error) {
	from, fromRunner := splitLocation(c.Source)
	to, toRunner := splitLocation(c.Destination)
	if (fromRunner == "") == (toRunner == "") {
		return errors.New("one of the two paths must be in a runner (RUNNER:PATH) and the other local")
	}
	cp := copying.Copier{Stdin: s.In, Stdout: s.Out, Stderr: s.Err, Client: server, Runner: fromRunner + toRunner, Recursive: c.Recursive, Protected: c.Protected, Quiet: c.Quiet}
	if toRunner != "" {
		err = cp.In(ctx, from, to)
	} else {
		err = cp.Out(ctx, from, to)
	}
	if ctx.Err() != nil {
		return command.ExitError(command.CodeInterrupted)
	}
	return err
}

// splitLocation splits RUNNER:PATH. A local path has no runner.
func splitLocation(text string) (path, runner string) {
	if before, after, ok := strings.Cut(text, ":"); ok && before != "" && !strings.Contains(before, "/") {
		return after, before
	}
	return text, ""
}
