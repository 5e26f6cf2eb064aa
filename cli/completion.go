package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/alecthomas/kong"

	"github.com/rockpool/rockpool/cli/completion"
	"github.com/rockpool/rockpool/cli/output"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh" help:"bash or zsh."`
}

// Run prints the script.
func (c *completionCommand) Run(s Streams) error {
	if _, err := io.WriteString(s.Out, completion.Script(c.Shell)); err != nil {
		return fmt.Errorf("write the script: %w", err)
	}
	return nil
}

// completeCommand answers the completion scripts. The words after -- are those of the command line;
// the last one is still being typed.
type completeCommand struct {
	// Within bounds the wait for the server, since the user has pressed a key. Distant servers need more.
	Within  time.Duration `hidden:"" env:"ROCKPOOL_COMPLETE_WITHIN" default:"1s"`
	program []string
}

func (c *completeCommand) takeProgram(words []string) { c.program = words }

// Run prints one candidate per line, each followed by a tab and its description. A line ":files"
// makes the script complete file names too.
func (c *completeCommand) Run(s Streams, k *kong.Kong) error {
	candidates, files := completion.Complete(k.Model.Node, c.program, c.Within)
	for _, candidate := range candidates {
		if _, err := fmt.Fprintf(s.Out, "%s\t%s\n", candidate.Word, output.Plain(candidate.Help)); err != nil {
			return err
		}
	}
	if files {
		_, _ = fmt.Fprintln(s.Out, ":files")
	}
	return nil
}
