package cli

import (
	"context"
	"io"
	"net/http"

	"github.com/rockpool/rockpool/cli/bridge"
	"github.com/rockpool/rockpool/cli/connection"
	"github.com/rockpool/rockpool/client"
)

type mcpCommand struct {
	connection.Flags
}

// Help is what its --help says beyond the flags.
func (mcpCommand) Help() string {
	return `Speaks the Model Context Protocol on stdin and stdout, for AI agents on this machine that start their tools as programs. It passes all on to the server, which needs --doors mcp. The agent's configuration has one of these commands:

    rockpool mcp
    rockpool mcp --server https://rockpool.example.org --token-file ~/.rockpool-token

Claude Code takes it so: claude mcp add rockpool -- rockpool mcp

An agent that speaks HTTP needs no such command: its address is that of the server with /mcp. docs/doors/mcp.md has the configuration of common agents.

Where neither a server nor a token was named and no server listens at http://127.0.0.1:8080, a private one is started, which ends with the agent and leaves nothing behind.`
}

// Run passes messages on until the agent leaves.
func (c *mcpCommand) Run(s Streams, private Private) error {
	server, err := c.Client()
	if err != nil {
		return err
	}
	ctx, stop := stoppable()
	defer stop()
	pass := func(ctx context.Context, server *client.Client) error {
		send := func(ctx context.Context, method string, header http.Header, body io.Reader) (*http.Response, error) {
			return server.Door(ctx, method, "/mcp", header, body)
		}
		return bridge.New(send, s.Out).Run(ctx, s.In)
	}
	if alone, err := private.wanted(ctx, c.Flags); err != nil {
		return err
	} else if alone {
		return private.Use(ctx, "", "", s, pass)
	}
	return pass(ctx, server)
}
