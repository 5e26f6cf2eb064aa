package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rockpool/rockpool/client"
)

type runnerCopy struct {
	serverFlag
	Recursive   bool   `short:"r" help:"Copy a directory with all that is in it."`
	Quiet       bool   `short:"q" help:"Show no progress. It shows on a terminal only."`
	Source      string `arg:"" name:"from" complete:"file" help:"A path here, RUNNER:PATH, or - for standard input."`
	Destination string `arg:"" name:"to" complete:"file" help:"RUNNER:PATH, a path here, or - for standard output. A directory that is there gets what is copied into it."`
}

// Help is what its --help says beyond the flags.
func (runnerCopy) Help() string {
	return `Paths in a runner are absolute, or below /workspace. Files arrive there as root's, executable where they are here; a file is replaced whole or not at all. Links, devices and the like are left out, and named. A path here that has a colon is written with a slash before it: ./a:b.

    rockpool runner cp main.c "$id:"
    rockpool runner cp -r project "$id:src"
    rockpool runner cp "$id:/tmp/core" .
    rockpool runner cp "$id:table.csv" - | head`
}

// Run copies files.
func (c *runnerCopy) Run(s Streams) error {
	server, err := c.client()
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
	cp := &copier{Streams: s, client: server, recursive: c.Recursive, runner: fromRunner + toRunner, progress: newProgress(s.Err, c.Quiet)}
	defer cp.progress.end()
	if toRunner != "" {
		err = cp.in(ctx, from, to)
	} else {
		err = cp.out(ctx, from, to)
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

// A copier copies files between here and one runner.
type copier struct {
	Streams
	client    *client.Client
	recursive bool
	runner    string
	progress  *progress
	leftOut   int // entries that are neither file nor directory, or whose names can't be
}

func (c *copier) leaveOut(path, why string) {
	c.leftOut++
	c.progress.end()
	_, _ = fmt.Fprintf(c.Err, "rockpool: %s is left out: %s\n", plain(path), plain(why))
}

// stat returns nil if there is nothing at path.
func (c *copier) stat(ctx context.Context, path string) (*client.DownloadableFile, error) {
	out, err := client.GetFile(ctx, patient(c.client, serverPatience), c.runner, inRunner(path))
	if err != nil {
		return nil, err
	}
	if out.Runner == nil {
		return nil, fmt.Errorf("there is no runner %q; `rockpool runner list` lists those that there are", c.runner)
	}
	return out.Runner.File, nil
}

// inRunner returns a path as the API takes it; none is the workspace.
func inRunner(path string) string {
	if path == "" {
		return "."
	}
	return path
}
