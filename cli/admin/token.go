// Package admin has the commands for operators: tokens, tenants, the audit log and drains.
package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

// TokenCommands are those of rockpool token.
type TokenCommands struct {
	Create tokenCreate `cmd:"" help:"Create a token and print it once."`
	List   tokenList   `cmd:"" help:"List tokens, without their secrets."`
	Revoke tokenRevoke `cmd:"" help:"Revoke tokens."`
	Grant  tokenGrant  `cmd:"" help:"Create a grant: short-lived rights to one execution or runner, for example for a browser."`
}

type tokenCreate struct {
	command.Flags
	JSON    bool          `name:"json" help:"Print the token and its secret as JSON, with the API's names, instead of the secret."`
	Name    string        `arg:"" help:"A name for people, for example codeocean."`
	Role    string        `required:"" enum:"OBSERVER,CLIENT,OPERATOR,ADMIN" placeholder:"ROLE" help:"OBSERVER, CLIENT, OPERATOR or ADMIN."`
	Tenant  string        `placeholder:"NAME" help:"Tenant of the token. Default: your tenant; if you act for all tenants: all (a CLIENT needs a tenant)."`
	Expires time.Duration `default:"0s" from:"0" to:"87600h" placeholder:"TIME" help:"Lifetime, up to 87600h; 0: no expiry. (${default})"`
}

// Run creates a token. It doesn't retry after a broken connection: that could create two tokens.
func (c *tokenCreate) Run(ctx context.Context, s command.Streams, server *client.Client) error {
	in := client.CreateTokenInput{Name: c.Name, Role: client.Role(c.Role), Tenant: command.Optional(c.Tenant)}
	var err error
	if in.ExpiresIn, err = lifetime("--expires", c.Expires); err != nil {
		return err
	}
	out, err := client.CreateToken(ctx, server, in)
	if err != nil {
		return err
	}
	if c.JSON {
		return output.Format{JSON: true}.Print(s.Out, out.CreateToken, output.Table{})
	}
	_, err = fmt.Fprintln(s.Out, out.CreateToken.Secret)
	return err
}

// lifetime converts a flag's duration to whole seconds; nil for 0.
func lifetime(flag string, d time.Duration) (*int, error) {
	if d == 0 {
		return nil, nil
	}
	if d < time.Second || d%time.Second != 0 {
		return nil, fmt.Errorf("%s is %v, but must be whole seconds and at least 1s", flag, d)
	}
	n := int(d / time.Second)
	return &n, nil
}

type tokenList struct {
	command.Flags
	output.Format
	Sessions bool `help:"Also list sessions: the tokens of browsers that signed in."`
}

func (c *tokenList) Run(ctx context.Context, s command.Streams, server client.Sender) error {
	out, err := client.GetTokens(ctx, server, &c.Sessions)
	if err != nil {
		return err
	}
	t := output.Table{Head: []string{"TOKEN", "NAME", "ROLE", "TENANT", "CREATED", "MADE BY", "USED", "ENDS"}}
	for _, token := range out.Tokens {
		tenant, ends := "all", output.Ago(token.ExpiresAt)
		if token.Tenant != nil {
			tenant = *token.Tenant
		}
		if token.RevokedAt != nil {
			ends = "revoked " + output.Ago(token.RevokedAt)
		}
		t.Rows = append(t.Rows, []string{token.Id, token.Name, string(token.Role), tenant, output.Ago(&token.CreatedAt), token.CreatedBy, output.Ago(token.LastUsedAt), ends})
	}
	return c.List(s.Out, s.Err, out.Tokens, t, "no tokens: create the first one with `rockpool token create NAME --role ADMIN`")
}

type tokenRevoke struct {
	command.Flags
	output.Format
	IDs      []string `arg:"" name:"token" help:"Ids of the tokens, as rockpool token list prints them."`
	AlsoMade bool     `help:"Also revoke all tokens that were created with them, directly or indirectly: use it when a token leaked."`
}

func (c *tokenRevoke) Run(ctx context.Context, s command.Streams, server client.Sender) error {
	return command.Each(ctx, s, c.Format, c.IDs, "revoked", "has already ended", func(ctx context.Context, id string) (bool, error) {
		out, err := client.RevokeToken(ctx, server, id, &c.AlsoMade)
		if err != nil {
			return false, explainID(ctx, server, id, err)
		}
		return out.RevokeToken.Revoked || out.RevokeToken.MadeRevoked > 0, nil
	})
}

// explainID returns the error for an invalid token id. If the id is a token's name, the error says
// the token's id.
func explainID(ctx context.Context, server client.Sender, id string, err error) error {
	if client.CodeOf(err) != runtime.CodeInvalidInput {
		return err
	}
	var named []string
	if out, err := client.GetTokens(ctx, server, new(false)); err == nil { // otherwise the first error is enough
		for _, token := range out.Tokens {
			if token.Name == id && token.RevokedAt == nil {
				named = append(named, token.Id)
			}
		}
	}
	if len(named) == 0 {
		return errors.New("no token has this id; `rockpool token list` lists the ids")
	}
	return fmt.Errorf("this is a token's name; give its id instead: %s", strings.Join(named, " or "))
}

type tokenGrant struct {
	command.Flags
	JSON      bool          `name:"json" help:"Print the grant as JSON, with the API's names, instead of its text."`
	Execution string        `xor:"object" required:"" placeholder:"ID" help:"The execution that the grant gives access to."`
	Runner    string        `xor:"object" required:"" placeholder:"ID" help:"The runner that the grant gives access to, with all its executions."`
	Right     []string      `default:"WATCH" enum:"WATCH,STDIN,CANCEL,FILES_READ,FILES_WRITE,EXECUTE" placeholder:"RIGHT" help:"Right to give: WATCH, STDIN, CANCEL, FILES_READ, FILES_WRITE, EXECUTE. Can be given more than once. (${default})"`
	Expires   time.Duration `default:"1h" from:"1s" to:"720h" placeholder:"TIME" help:"Lifetime, 1s to 720h. (${default})"`
}

func (c *tokenGrant) Run(ctx context.Context, s command.Streams, server client.Sender) error {
	in := client.CreateGrantInput{ExecutionId: command.Optional(c.Execution), RunnerId: command.Optional(c.Runner)}
	for _, right := range c.Right {
		in.Rights = append(in.Rights, client.GrantRight(strings.ToUpper(right)))
	}
	var err error
	if in.ExpiresIn, err = lifetime("--expires", c.Expires); err != nil {
		return err
	}
	out, err := client.CreateGrant(ctx, server, in)
	if err != nil {
		return err
	}
	if c.JSON {
		return output.Format{JSON: true}.Print(s.Out, out.CreateGrant, output.Table{})
	}
	_, err = fmt.Fprintln(s.Out, out.CreateGrant.Token)
	return err
}

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
