// Package copying copies files and directories into and out of a runner. It retries after broken
// connections and shows progress on a terminal.
package copying

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime/paths"
)

// A Copier copies files between this machine and one runner. Use it for one copy.
type Copier struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Client         *client.Client
	Runner         string
	Recursive      bool // copy directories with their contents
	Protected      bool // programs in the runner can't change the copied files
	Quiet          bool // show no progress

	progress *progress
	leftOut  int // files and directories that couldn't be copied
}

// skip reports a path that isn't copied because it is neither a file nor a directory. That isn't an error.
func (c *Copier) skip(path string, link bool) {
	what := "neither a file nor a directory"
	if link {
		what = "a symbolic link"
	}
	c.progress.end()
	_, _ = fmt.Fprintf(c.Stderr, "rockpool: skipped %s: it is %s\n", output.Plain(path), what)
}

// leaveOut reports a path that couldn't be copied. The copy continues and fails at its end.
func (c *Copier) leaveOut(path, why string) {
	c.leftOut++
	c.progress.end()
	_, _ = fmt.Fprintf(c.Stderr, "rockpool: couldn't copy %s: %s\n", output.Plain(path), output.Plain(why))
}

// stat returns the file at path; nil if there is none. It is a copy's first call: if no server
// listens, it doesn't retry.
func (c *Copier) stat(ctx context.Context, path string) (*client.DownloadableFile, error) {
	return c.statBy(ctx, command.Patient(c.Client, command.Patience), path)
}

// statBy is stat with the given sender, which decides about retries.
func (c *Copier) statBy(ctx context.Context, server client.Sender, path string) (*client.DownloadableFile, error) {
	out, err := client.GetFile(ctx, server, c.Runner, path)
	if err != nil {
		return nil, err
	}
	if out.Runner == nil {
		return nil, &client.Error{Message: fmt.Sprintf("runner %q doesn't exist: `rockpool runner list` lists the runners", c.Runner)}
	}
	return out.Runner.File, nil
}

// inRunner returns the text of a path, for the API; "" means the workspace.
func inRunner(path string) string { return cmp.Or(paths.Given(path), ".") }
