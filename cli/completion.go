package cli

import (
	_ "embed"
	"fmt"
	"io"
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

//go:embed completion.bash
var bashCompletion string

//go:embed completion.zsh
var zshCompletion string

// Run prints the script. It asks rockpool itself for everything, so that it is
// never behind.
func (c *completionCommand) Run(s Streams) error {
	_, err := io.WriteString(s.Out, map[string]string{"bash": bashCompletion, "zsh": zshCompletion}[c.Shell])
	if err != nil {
		return fmt.Errorf("write the script: %w", err)
	}
	return nil
}
