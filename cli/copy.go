package cli

import (
	"errors"
	"strings"

	"github.com/rockpool/rockpool/cli/connection"
	"github.com/rockpool/rockpool/cli/copying"
)

type runnerCopy struct {
	connection.Flags
	Recursive   bool   `short:"r" help:"Copy a directory with all its contents."`
	Protected   bool   `help:"Keep programs in the runner from changing and deleting the copied files, which then belong to root."`
	Quiet       bool   `short:"q" help:"Show no progress. Without a terminal, none is shown anyway."`
	Source      string `arg:"" name:"from" complete:"file" help:"A local path, RUNNER:PATH, or - for standard input."`
	Destination string `arg:"" name:"to" complete:"file" help:"RUNNER:PATH, a local path, or - for standard output. If it is an existing directory, the copy goes into it."`
}

// Run copies files.
func (c *runnerCopy) Run(s Streams) error {
	server, err := c.Client()
	if err != nil {
		return err
	}
	from, fromRunner := splitPlace(c.Source)
	to, toRunner := splitPlace(c.Destination)
	if (fromRunner == "") == (toRunner == "") {
		return errors.New("one of the two paths must be in a runner (RUNNER:PATH) and the other local")
	}
	ctx, stop := Stoppable()
	defer stop()
	cp := copying.Copier{Stdin: s.In, Stdout: s.Out, Stderr: s.Err, Client: server, Runner: fromRunner + toRunner, Recursive: c.Recursive, Protected: c.Protected, Quiet: c.Quiet}
	if toRunner != "" {
		err = cp.In(ctx, from, to)
	} else {
		err = cp.Out(ctx, from, to)
	}
	if ctx.Err() != nil {
		return ExitError(CodeInterrupted)
	}
	return err
}

// splitPlace splits RUNNER:PATH. A local path has no runner.
func splitPlace(text string) (path, runner string) {
	if before, after, ok := strings.Cut(text, ":"); ok && before != "" && !strings.Contains(before, "/") {
		return after, before
	}
	return text, ""
}
