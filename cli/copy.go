package cli

import (
	"errors"
	"strings"

	"github.com/rockpool/rockpool/cli/connection"
	"github.com/rockpool/rockpool/cli/copying"
)

type runnerCopy struct {
	connection.Flags
	Recursive   bool   `short:"r" help:"Copy a directory with all that is in it."`
	Writable    bool   `short:"w" help:"Let programs in the runner change and delete what is copied there."`
	Quiet       bool   `short:"q" help:"Show no progress. It shows on a terminal only."`
	Source      string `arg:"" name:"from" complete:"file" help:"A path here, RUNNER:PATH, or - for standard input."`
	Destination string `arg:"" name:"to" complete:"file" help:"RUNNER:PATH, a path here, or - for standard output. A directory that is there gets what is copied into it."`
}

// Help is what its --help says beyond the flags.
func (runnerCopy) Help() string {
	return `Paths in a runner are absolute, or below /workspace. Files arrive there as root's, executable where they are here: programs can read them, and change them only with --writable. A file is replaced whole or not at all. A path here that has a colon is written with a slash before it: ./a:b.

With -r, symbolic links aren't followed: links, devices and the like are skipped, and each is named on stderr. What can't be read is named, too, and the rest is copied.

    rockpool runner cp main.c "$id:"
    rockpool runner cp -r --writable project "$id:"
    rockpool runner cp "$id:/tmp/core" .
    rockpool runner cp "$id:table.csv" - | head

Exit codes:
    0    all files and directories were copied; links were skipped
    125  something wasn't copied
    130  it was interrupted`
}

// Run copies files.
func (c *runnerCopy) Run(s Streams) error {
	server, err := c.Client()
	if err != nil {
		return err
	}
	from, fromRunner := place(c.Source)
	to, toRunner := place(c.Destination)
	if (fromRunner == "") == (toRunner == "") {
		return errors.New("one of the two must be in a runner, as RUNNER:PATH, and the other here")
	}
	ctx, stop := stoppable()
	defer stop()
	cp := copying.Copier{Stdin: s.In, Stdout: s.Out, Stderr: s.Err, Client: server, Runner: fromRunner + toRunner, Recursive: c.Recursive, Writable: c.Writable, Quiet: c.Quiet}
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

// place splits RUNNER:PATH; a path here has no runner.
func place(text string) (path, runner string) {
	if before, after, ok := strings.Cut(text, ":"); ok && before != "" && !strings.Contains(before, "/") {
		return after, before
	}
	return text, ""
}
