package cli

import (
	"context"
	"io"
	"net/http"

	"github.com/rockpool/rockpool/cli/bridge"
	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/client"
)

type mcpCommand struct {
	command.Flags
}

// Run forwards messages until the agent closes stdin.
func (c *mcpCommand) Run(s command.Streams, private Private) error {
	server, err := c.Client()
	if err != nil {
		return err
	}
	ctx, stop := command.Stoppable()
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
