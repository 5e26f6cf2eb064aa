package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rockpool/rockpool/cli/connection"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

type tokenCommands struct {
	Create tokenCreate `cmd:"" help:"Make a token, and print it once."`
	List   tokenList   `cmd:"" help:"List the tokens, without their secrets."`
	Revoke tokenRevoke `cmd:"" help:"Revoke tokens at once."`
	Grant  tokenGrant  `cmd:"" help:"Make a grant: a short-lived right to one execution or runner, to hand to a browser."`
}

// Help returns the description and examples for rockpool token --help.
func (tokenCommands) Help() string {
	return `Roles, each with all that the ones before it may:

    OBSERVER    reads what belongs to its tenant
    CLIENT      claims runners and uses them, makes grants
    OPERATOR    puts and deletes environments
    ADMIN       manages tokens; for all tenants also tenants and the server

Examples:

    (umask 077; rockpool token create admin --role ADMIN > admin.token)
    export ROCKPOOL_TOKEN_FILE=admin.token
    rockpool token create codeocean --role CLIENT --tenant physics --expires 2160h
    rockpool token list
    rockpool token revoke 019b…`
}

type tokenCreate struct {
	connection.Flags
	JSON    bool          `name:"json" help:"Print the token and its secret as JSON, with the API's names, rather than the secret alone."`
	Name    string        `arg:"" help:"A name for people, for example codeocean."`
	Role    string        `required:"" enum:"OBSERVER,CLIENT,OPERATOR,ADMIN" placeholder:"ROLE" help:"OBSERVER, CLIENT, OPERATOR or ADMIN."`
	Tenant  string        `placeholder:"NAME" help:"The tenant of its callers. Default: yours; if you act for all tenants: all (a CLIENT needs a tenant)."`
	Expires time.Duration `default:"0s" from:"0" to:"87600h" placeholder:"TIME" help:"Lifetime, up to 87600h; 0: no expiry. (${default})"`
}

// Help returns the description and examples for --help.
func (tokenCreate) Help() string {
	return `The token is printed here and never again: the server keeps only a hash.

The first token of a server that needs none must be an ADMIN's, for all tenants and without --expires. From then on the server needs tokens.

    rockpool token create admin --role ADMIN > admin.token
    rockpool token create ci --role OPERATOR --tenant physics --expires 720h`
}

// Run makes a token. It isn't repeated where a connection broke: that could make two.
func (c *tokenCreate) Run(s Streams) error {
	ctx, stop := stoppable()
	defer stop()
	server, err := c.Client()
	if err != nil {
		return err
	}
	in := client.CreateTokenInput{Name: c.Name, Role: client.Role(c.Role), Tenant: optional(c.Tenant)}
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

// lifetime returns the seconds of a flag; nil for 0.
func lifetime(flag string, d time.Duration) (*int, error) {
	if d == 0 {
		return nil, nil
	}
	if d < time.Second || d%time.Second != 0 {
		return nil, fmt.Errorf("%s is %v, but must be whole seconds, 1s at least", flag, d)
	}
	n := int(d / time.Second)
	return &n, nil
}

type tokenList struct {
	connection.Flags
	output.Format
	Sessions bool `help:"List sessions too: the tokens that signing in with a browser makes."`
}

// Help returns the description and examples for --help.
func (tokenList) Help() string {
	return `Examples:

    rockpool token list
    rockpool token list --json | jq -r '.[] | select(.lastUsedAt == null) | .id'`
}

// Run lists the tokens.
func (c *tokenList) Run(s Streams) error {
	ctx, stop := stoppable()
	defer stop()
	server, err := c.Patient()
	if err != nil {
		return err
	}
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
	return c.List(s.Out, s.Err, out.Tokens, t, "no tokens: `rockpool token create NAME --role ADMIN` makes the first one")
}

type tokenRevoke struct {
	connection.Flags
	output.Format
	IDs      []string `arg:"" name:"token" help:"Their ids, as rockpool token list prints them."`
	AlsoMade bool     `help:"Revoke also all tokens that were made with them, with those, and so on: for a token that leaked."`
}

// Help returns the description and examples for --help.
func (tokenRevoke) Help() string {
	return `The server refuses a revoked token at once, and ends its subscriptions and grants. A token that had already ended is reported as an error; the others are revoked.

Tokens that were made with a revoked one stay. For a token that leaked, revoke those as well:

    rockpool token revoke 019b2f3e-…
    rockpool token revoke 019b2f3e-… --also-made

If the token of --token-file leaked, start the server with another one. Then revoke what was made with the old one; its id begins with file-, and is in the column MADE BY of rockpool token list.`
}

// Run revokes tokens.
func (c *tokenRevoke) Run(s Streams) error {
	server, err := c.Patient()
	if err != nil {
		return err
	}
	return each(s, c.Format, c.IDs, "revoked", func(ctx context.Context, id string) (bool, error) {
		out, err := client.RevokeToken(ctx, server, id, &c.AlsoMade)
		if err != nil {
			return false, notAnID(ctx, server, id, err)
		}
		return out.RevokeToken.Revoked || out.RevokeToken.MadeRevoked > 0, nil
	})
}

// notAnID returns an error about a token that isn't there, with where its id is.
func notAnID(ctx context.Context, server client.Sender, id string, err error) error {
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Extensions.Code != runtime.CodeInvalidInput {
		return err
	}
	var named []string
	if out, err := client.GetTokens(ctx, server, new(false)); err == nil { // else the caller's own error is the news
		for _, token := range out.Tokens {
			if token.Name == id && token.RevokedAt == nil {
				named = append(named, token.Id)
			}
		}
	}
	if len(named) == 0 {
		return errors.New("there is no token with this id; `rockpool token list` shows the ids")
	}
	return fmt.Errorf("this is a token's name: give its id instead, which is %s", strings.Join(named, " or "))
}

type tokenGrant struct {
	connection.Flags
	JSON      bool          `name:"json" help:"Print the grant as JSON, with the API's names, rather than its text alone."`
	Execution string        `xor:"object" required:"" placeholder:"ID" help:"The execution that it is for."`
	Runner    string        `xor:"object" required:"" placeholder:"ID" help:"The runner that it is for, with all executions in it."`
	Right     []string      `default:"WATCH" enum:"WATCH,STDIN,CANCEL,FILES_READ,FILES_WRITE,EXECUTE" placeholder:"RIGHT" help:"What it allows: WATCH, STDIN, CANCEL, FILES_READ, FILES_WRITE, EXECUTE. Can be given more than once. (${default})"`
	Expires   time.Duration `default:"1h" from:"1s" to:"720h" placeholder:"TIME" help:"Lifetime, 1s to 720h. (${default})"`
}

// Help returns the description and examples for --help.
func (tokenGrant) Help() string {
	return `A grant is used as a token is, and can do nothing but what it says. It ends with its time, its object, or the token that made it.

    rockpool token grant --execution 019b…
    rockpool token grant --runner 019b… --right FILES_READ --right WATCH --expires 15m`
}

// Run makes a grant.
func (c *tokenGrant) Run(s Streams) error {
	ctx, stop := stoppable()
	defer stop()
	server, err := c.Patient()
	if err != nil {
		return err
	}
	in := client.CreateGrantInput{ExecutionId: optional(c.Execution), RunnerId: optional(c.Runner)}
	for _, right := range c.Right {
		in.Rights = append(in.Rights, client.GrantRight(strings.ToUpper(right)))
	}
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
