package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
)

// AuditCommand is rockpool audit.
type AuditCommand struct {
	command.Flags
	Actor  string `placeholder:"ID" help:"Only entries of the token, session or grant with this id. For callers without an id give their kind, for example UNKNOWN."`
	Action string `placeholder:"NAME" help:"Only this action, for example claimRunner, createToken, signIn or authenticate."`
	Object string `placeholder:"ID" help:"Only entries about the object with this id: a runner, an execution, a token …"`
	Failed bool   `help:"Only failures: entries whose outcome isn't OK."`
	From   string `placeholder:"TIME" help:"Only entries from this time on: a time such as 2026-11-20T21:27:00Z, or a duration before now such as 90s, 24h or 7d."`
	To     string `placeholder:"TIME" help:"Only entries before this time; same format as --from."`
	Lines  int    `short:"n" default:"100" placeholder:"N" help:"Print the newest N entries; 0: all. (${default})"`
	Follow bool   `short:"f" help:"Keep printing new entries until Ctrl-C."`
	JSON   bool   `name:"json" help:"Print one JSON object per line, with the API's names."`
}

// Run prints the audit log.
func (c *AuditCommand) Run(ctx context.Context, s command.Streams, server *client.Client) error {
	switch {
	case c.Lines < 0:
		return fmt.Errorf("--lines is %d, but must be 0 or more", c.Lines)
	case c.Follow && c.To != "":
		return errors.New("--follow prints new entries, so --to has no meaning: remove one of them")
	}
	r := auditReader{c: c, out: s.Out, server: server}
	var err error
	if r.from, err = command.Moment("--from", c.From); err != nil {
		return err
	}
	if r.to, err = command.Moment("--to", c.To); err != nil {
		return err
	}
	if c.Lines > 0 {
		err = r.newest(ctx, c.Lines)
	} else {
		err = r.rest(ctx)
	}
	if err == nil && r.after == nil && !c.Follow {
		_, _ = fmt.Fprintln(s.Err, "rockpool: no entries match: remove a filter, or give an earlier --from")
	}
	if err != nil || !c.Follow {
		return errors.Join(err, r.missing)
	}
	return r.follow(ctx, s.Err)
}

// An auditReader prints audit entries, the oldest first, each exactly once.
type auditReader struct {
	c        *AuditCommand
	out      io.Writer
	server   *client.Client
	from, to *time.Time

	after   *string // cursor of the newest printed entry
	missing error   // why the server hasn't stored all entries yet, or nil
}

// newest prints up to most of the newest entries.
func (r *auditReader) newest(ctx context.Context, most int) error {
	var all []client.AuditEdge
	var after *string
	for {
		edges, more, err := r.page(ctx, min(most-len(all), *command.PageSize), after, true)
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

// rest prints all entries after the last printed one.
func (r *auditReader) rest(ctx context.Context) error {
	for {
		edges, more, err := r.page(ctx, *command.PageSize, r.after, false)
		if err != nil {
			return err
		}
		if err := r.print(edges); err != nil || !more || len(edges) == 0 {
			return err
		}
	}
}

// followEvery is the interval at which --follow polls the server.
const followEvery = time.Second

// follow prints new entries until ctx ends.
func (r *auditReader) follow(ctx context.Context, errs io.Writer) error {
	again := time.NewTicker(followEvery)
	defer again.Stop()
	for printed := ""; ; {
		now := ""
		if r.missing != nil {
			now = r.missing.Error()
		}
		if now != "" && printed == "" {
			_, _ = fmt.Fprintf(errs, "rockpool: %s\n", output.Plain(now))
		}
		printed = now
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

// page returns one page of entries. A response can have both entries and an error about missing
// ones: page keeps that error in r.missing.
func (r *auditReader) page(ctx context.Context, first int, after *string, newestFirst bool) (edges []client.AuditEdge, more bool, err error) {
	read := func(sender client.Sender) (*client.GetAuditLogResponse, error) {
		return client.GetAuditLog(ctx, sender, command.Optional(r.c.Actor), command.Optional(r.c.Action), command.Optional(r.c.Object), command.Optional(r.c.Failed), r.from, r.to, &first, after, &newestFirst)
	}
	out, err := read(r.server)
	var refused *client.Error
	if err != nil && out.AuditLog.Edges == nil && (!errors.As(err, &refused) || client.Passing(err)) {
		out, err = read(command.Patient(r.server, command.Patience))
	}
	if out.AuditLog.Edges == nil {
		return nil, false, err
	}
	r.missing = err
	return out.AuditLog.Edges, out.AuditLog.PageInfo.HasNextPage, nil
}

// print prints entries and moves the cursor behind each one that it has printed.
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

// auditLine formats an entry as one line of text.
func auditLine(e client.AuditEntry) string {
	actor := strings.TrimSpace(e.ActorKind + " " + e.ActorId)
	if e.ActorName != "" {
		actor = fmt.Sprintf("%s (%s)", e.ActorName, actor)
	}
	parts := []string{fmt.Sprintf("%s  %-17s %-17s", e.At.UTC().Format(time.RFC3339), e.Outcome, e.Action)}
	for _, part := range [][2]string{
		{strings.ToLower(e.ObjectKind), e.ObjectId}, {"by", actor}, {"role", e.Role}, {"tenant", command.Text(e.Tenant)}, {"from", command.Text(e.Address)},
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
