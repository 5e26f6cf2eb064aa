package admin

import (
	"cmp"
	"context"
	"strings"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
)

// WhoamiCommand is rockpool whoami.
type WhoamiCommand struct {
	command.Flags
	output.Format
}

// Run shows the caller.
func (c *WhoamiCommand) Run(ctx context.Context, s command.Streams, server client.Sender) error {
	out, err := client.GetCaller(ctx, server)
	if err != nil {
		return err
	}
	return c.Print(s.Out, out.Me, callerTable(out.Me))
}

// callerTable returns a caller as rows of name and value. The rows of the grant are only for a
// grant.
func callerTable(me client.Caller) output.Table {
	kind := string(me.Kind)
	if me.Kind == client.CallerKindAnonymous {
		kind += ": the server needs no token, so every client that reaches it can do everything"
	}
	t := output.Table{Head: []string{"caller", me.Name}, Rows: [][]string{{"kind", kind}, {"tenant", cmp.Or(command.Text(me.Tenant), "all")}}}
	if me.Role != nil {
		t.Rows = append(t.Rows, []string{"role", string(*me.Role)})
	}
	if g := me.Grant; g != nil {
		rights := make([]string, len(g.Rights))
		for i, right := range g.Rights {
			rights[i] = string(right)
		}
		object := []string{"execution", command.Text(g.ExecutionId)}
		if g.RunnerId != nil {
			object = []string{"runner", *g.RunnerId}
		}
		t.Rows = append(t.Rows, []string{"grant", g.Id}, object, []string{"rights", strings.Join(rights, " ")}, []string{"ends", output.Ago(&g.ExpiresAt)})
	}
	return t
}
