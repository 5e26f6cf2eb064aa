// Package copying copies files and directories into a runner, and out of one. Broken
// connections are taken up again, and progress is shown on a terminal.
package copying

import (
	"context"
	"fmt"
	"io"

	"github.com/rockpool/rockpool/cli/connection"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
)

// A Copier copies files between here and one runner, once.
type Copier struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Client         *client.Client
	Runner         string
	Recursive      bool // directories are copied, with all that is in them
	Writable       bool // programs may change what is copied in
	Quiet          bool // no progress is shown

	progress *progress
	leftOut  int // files and directories that should be here or there, and aren't
}

// skip names what isn't copied since it is neither a file nor a directory. That is no error.
func (c *Copier) skip(path string, link bool) {
	what := "neither a file nor a directory"
	if link {
		what = "a symbolic link"
	}
	c.progress.end()
	_, _ = fmt.Fprintf(c.Stderr, "rockpool: %s is skipped: it is %s\n", output.Plain(path), what)
}

// leaveOut names what could not be copied, for which the copy fails at its end.
func (c *Copier) leaveOut(path, why string) {
	c.leftOut++
	c.progress.end()
	_, _ = fmt.Fprintf(c.Stderr, "rockpool: %s is left out: %s\n", output.Plain(path), output.Plain(why))
}

// stat returns nil if there is nothing at path. It is a copy's first call, so a server that isn't there is one that nobody started.
func (c *Copier) stat(ctx context.Context, path string) (*client.DownloadableFile, error) {
	return c.statBy(ctx, connection.Patient(c.Client, connection.Patience), path)
}

func (c *Copier) statBy(ctx context.Context, server client.Sender, path string) (*client.DownloadableFile, error) {
	out, err := client.GetFile(ctx, server, c.Runner, inRunner(path))
	if err != nil {
		return nil, err
	}
	if out.Runner == nil {
		return nil, &client.Error{Message: fmt.Sprintf("there is no runner %q; `rockpool runner list` lists those that there are", c.Runner)}
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
