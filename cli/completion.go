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

// Help is what its --help says beyond the flags.
func (completionCommand) Help() string {
	return `Commands, flags and their values are completed, and from the server that --server or ROCKPOOL_SERVER names: environments, runners and executions. A server has 1 s to answer; set ROCKPOOL_COMPLETE_WITHIN=3s for a distant one.

    source <(rockpool completion bash)                    # in ~/.bashrc
    source <(rockpool completion zsh)                     # in ~/.zshrc, after compinit
    rockpool completion zsh > ~/.zfunc/_rockpool          # or in a directory of $fpath`
}

// Run prints the script.
func (c *completionCommand) Run(s Streams) error {
	if _, err := io.WriteString(s.Out, completion.Script(c.Shell)); err != nil {
		return fmt.Errorf("write the script: %w", err)
	}
	return nil
}

// completeCommand is what the completion scripts ask. The words after -- are
// those of the command line, the last as far as it has been typed.
type completeCommand struct {
	// Within bounds what a server may take: somebody has pressed a key and waits. One that is far away needs more.
	Within  time.Duration `hidden:"" env:"ROCKPOOL_COMPLETE_WITHIN" default:"1s"`
	program []string
}

func (c *completeCommand) takeProgram(words []string) { c.program = words }

// Run prints the candidates, one per line, each with a tab and what it is.
// Beside them ":files" asks for names of files, and ":nospace" for no space
// behind the candidate.
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
