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

// Help returns the description and examples for --help.
func (mcpCommand) Help() string {
	return `Connects an AI agent on this machine to a server: it speaks the Model Context Protocol on stdin and stdout, and
forwards messages to the server. Start the server with --compat mcp. Put one of these commands into the agent's
configuration:

    rockpool mcp
    rockpool mcp --server https://rockpool.example.org --token-file ~/.rockpool-token

For Claude Code: claude mcp add rockpool -- rockpool mcp

An agent that speaks HTTP doesn't need this command: use the server's address with /mcp. See docs/compat/mcp.md for
the configuration of common agents.

If you give neither a server nor a token, and no server listens at http://127.0.0.1:8080, the command starts a
temporary server, and removes it when the agent disconnects.`
}

// Run forwards messages until the agent closes stdin.
func (c *mcpCommand) Run(s Streams, private Private) error {
	server, err := c.Client()
	if err != nil {
		return err
	}
	ctx, stop := Stoppable()
	defer stop()
	forward := func(ctx context.Context, server *client.Client) error {
		send := func(ctx context.Context, method string, header http.Header, body io.Reader) (*http.Response, error) {
			return server.Request(ctx, method, "/mcp", header, body)
		}
		return bridge.New(send, s.Out).Run(ctx, s.In)
	}
	if alone, err := private.needed(ctx, c.Flags); err != nil {
		return err
	} else if alone {
		return private.Use(ctx, "", "", s, forward)
	}
	return forward(ctx, server)
}
