package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rockpool/rockpool/cli/connection"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/config/quantity"
)

type auditCommand struct {
	connection.Flags
	Actor  string `placeholder:"ID" help:"Only what the token, session or grant with this id did, or what callers without an id did, by their kind, for example UNKNOWN."`
	Action string `placeholder:"NAME" help:"Only this action, for example claimRunner, createToken, signIn or authenticate."`
	Object string `placeholder:"ID" help:"Only what was done to the object with this id: a runner, an execution, a token …"`
	Failed bool   `help:"Only what failed: whose outcome isn't OK."`
	From   string `placeholder:"TIME" help:"Only what was done since then: a time as in 2026-11-20T21:27:00Z, or a duration before now as in 90s, 24h, 7d."`
	To     string `placeholder:"TIME" help:"Only what was done before then; as --from."`
	Lines  int    `short:"n" default:"100" placeholder:"N" help:"How many entries, the newest ones; 0: all. (${default})"`
	Follow bool   `short:"f" help:"Go on, and print new entries as they come, until Ctrl-C."`
	JSON   bool   `name:"json" help:"Print one JSON object per line, with the API's names."`
}

// Help is what its --help says beyond the flags.
func (auditCommand) Help() string {
	return `Prints changes and attempted changes, the newest last: time, outcome, action, object, caller, tenant and address. An ADMIN of a tenant reads the entries of that tenant.

    rockpool audit
    rockpool audit --from 24h --action createToken
    rockpool audit --object "$runner" --lines 0 --json | jq -r .actorName
    rockpool audit --from 24h --failed
    rockpool audit --actor UNKNOWN                # callers that showed no valid token
    rockpool audit --follow`
}

// Run prints the audit log.
func (c *auditCommand) Run(s Streams) error {
	switch {
	case c.Lines < 0:
		return fmt.Errorf("--lines is %d, but must be 0 or more", c.Lines)
	case c.Follow && c.To != "":
		return errors.New("--follow prints what is done from now on: leave --to out")
	}
	r := auditReader{c: c, out: s.Out}
	var err error
	if r.from, err = moment("--from", c.From); err != nil {
		return err
	}
	if r.to, err = moment("--to", c.To); err != nil {
		return err
	}
	if r.server, err = c.Client(); err != nil {
		return err
	}
	ctx, stop := stoppable()
	defer stop()
	if c.Lines > 0 {
		err = r.newest(ctx, c.Lines)
	} else {
		err = r.rest(ctx)
	}
	if err == nil && r.after == nil && !c.Follow {
		_, _ = fmt.Fprintln(s.Err, "rockpool: no such entries: leave out a flag, or name an earlier --from")
	}
	if err != nil || !c.Follow {
		return errors.Join(err, r.missing)
	}
	return r.follow(ctx, s.Err)
}

// moment returns the time that a flag names; nil for "".
func moment(flag, text string) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return &at, nil
	}
	before, err := quantity.Duration(text, time.Second)
	if err != nil || before < 0 {
		return nil, fmt.Errorf("%s is %q, but must be a time as in 2026-11-20T21:27:00Z, or a duration before now as in 24h or 7d", flag, text)
	}
	return new(time.Now().Add(-before)), nil
}

// An auditReader prints entries, the oldest first, each once.
type auditReader struct {
	c        *auditCommand
	out      io.Writer
	server   *client.Client
	from, to *time.Time

	after   *string // the cursor of the newest entry that was printed
	missing error   // why entries are missing that the server can't store yet; nil: none is
}

// newest prints the newest entries.
func (r *auditReader) newest(ctx context.Context, most int) error {
	var all []client.AuditEdge
	var after *string
	for {
		edges, more, err := r.page(ctx, min(most-len(all), *connection.PageSize), after, true)
		if err != nil {
			return err
		}
		all = append(all, edges...)
		if !more || len(edges) == 0 || len(all) == most {
			break
		}
		after = &edges[len(edges)-1].Cursor
	}
	slices.Reverse(all)
	return r.print(all)
}

// rest prints all entries after the last one that was printed.
func (r *auditReader) rest(ctx context.Context) error {
	for {
		edges, more, err := r.page(ctx, *connection.PageSize, r.after, false)
		if err != nil {
			return err
		}
		if err := r.print(edges); err != nil || !more || len(edges) == 0 {
			return err
		}
	}
}

// followEvery is how often the server is asked for new entries.
const followEvery = time.Second

// follow prints new entries until ctx ends.
func (r *auditReader) follow(ctx context.Context, errs io.Writer) error {
	again := time.NewTicker(followEvery)
	defer again.Stop()
	for said := ""; ; {
		now := ""
		if r.missing != nil {
			now = r.missing.Error()
		}
		if now != "" && said == "" {
			_, _ = fmt.Fprintf(errs, "rockpool: %s\n", output.Plain(now))
		}
		said = now
		select {
		case <-again.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := r.rest(ctx); err != nil {
			return err
		}
	}
}

// page returns a page. It notes whether the server said beside it that entries are missing.
func (r *auditReader) page(ctx context.Context, first int, after *string, newestFirst bool) (edges []client.AuditEdge, more bool, err error) {
	ask := func(sender client.Sender) (*client.GetAuditLogResponse, error) {
		return client.GetAuditLog(ctx, sender, unless(r.c.Actor), unless(r.c.Action), unless(r.c.Object), unless(r.c.Failed), r.from, r.to, &first, after, &newestFirst)
	}
	out, err := ask(r.server)
	var refused *client.Error
	if err != nil && out.AuditLog.Edges == nil && (!errors.As(err, &refused) || client.Passing(err)) {
		out, err = ask(connection.Patient(r.server, connection.Patience))
	}
	if out.AuditLog.Edges == nil {
		return nil, false, err
	}
	r.missing = err
	return out.AuditLog.Edges, out.AuditLog.PageInfo.HasNextPage, nil
}

func (r *auditReader) print(edges []client.AuditEdge) error {
	for i, edge := range edges {
		var err error
		if r.c.JSON {
			err = output.JSONLine(r.out, edge.Node)
		} else {
			_, err = fmt.Fprintln(r.out, output.Plain(auditLine(edge.Node)))
		}
		if err != nil {
			return err
		}
		r.after = &edges[i].Cursor
	}
	return nil
}

// auditLine returns an entry as a line for people.
func auditLine(e client.AuditEntry) string {
	actor := strings.TrimSpace(e.ActorKind + " " + e.ActorId)
	if e.ActorName != "" {
		actor = fmt.Sprintf("%s (%s)", e.ActorName, actor)
	}
	parts := []string{fmt.Sprintf("%s  %-17s %-17s", e.At.UTC().Format(time.RFC3339), e.Outcome, e.Action)}
	for _, part := range [][2]string{
		{strings.ToLower(e.ObjectKind), e.ObjectId}, {"by", actor}, {"role", e.Role}, {"tenant", text(e.Tenant)}, {"from", text(e.Address)},
	} {
		if part[1] != "" {
			parts = append(parts, part[0]+" "+part[1])
		}
	}
	for _, d := range e.Details {
		parts = append(parts, d.Name+" "+d.Value)
	}
	return strings.Join(parts, "  ")
}
