package admin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
)

// DrainCommand is rockpool drain.
type DrainCommand struct {
	command.Flags
	output.Format
	Off     bool          `help:"End the drain: pools fill again."`
	Wait    bool          `help:"Wait until no runner and no execution is left, and report what remains."`
	Timeout time.Duration `default:"0s" placeholder:"TIME" help:"With --wait: stop waiting after this time; 0: never. (${default})"`
}

// drained reports whether no runner and no execution is left.
func drained(d *client.Draining) bool { return d.Claimed+d.Leaving+d.Executions == 0 }

// remaining says what a drain still waits for. d is nil if the server doesn't drain.
func remaining(d *client.Draining) string {
	if d == nil {
		return "not draining: pools fill"
	}
	var left []string
	for _, part := range []struct {
		n    int
		what string
	}{{d.Claimed, "claimed runner"}, {d.Executions, "execution"}, {d.Leaving, "other runner"}} {
		switch {
		case part.n == 1:
			left = append(left, "1 "+part.what)
		case part.n > 1:
			left = append(left, fmt.Sprintf("%d %ss", part.n, part.what))
		}
	}
	if len(left) == 0 {
		return "draining: nothing is left"
	}
	return "draining: " + strings.Join(left, ", ") + " left"
}

// Run starts or ends a drain.
func (c *DrainCommand) Run(ctx context.Context, s command.Streams, server client.Sender) error {
	switch {
	case c.Off && c.Wait:
		return fmt.Errorf("--off ends the drain immediately: remove --wait")
	case c.Timeout < 0 || c.Timeout > 0 && !c.Wait:
		return fmt.Errorf("--timeout is %v, but must be above 0 and needs --wait", c.Timeout)
	}
	out, err := client.DrainCluster(ctx, server, !c.Off)
	if err != nil {
		return err
	}
	last := out.DrainCluster.Cluster
	var code error
	if c.Wait {
		if last, code, err = c.wait(ctx, s, server); err != nil {
			return err
		}
	}
	if err := c.Print(s.Out, last, output.Table{Head: []string{remaining(last.Draining)}}); err != nil {
		return err
	}
	return code
}

// drainEvery is the interval at which drain --wait polls the server.
const drainEvery = 500 * time.Millisecond

// wait returns when nothing is left, or after Timeout with an exit code. It prints what remains
// whenever that changes.
func (c *DrainCommand) wait(ctx context.Context, s command.Streams, server client.Sender) (last client.Cluster, code, err error) {
	var late <-chan time.Time
	if c.Timeout > 0 {
		late = time.After(c.Timeout)
	}
	again := time.NewTicker(drainEvery)
	defer again.Stop()
	for printed := ""; ; {
		out, err := client.GetCluster(ctx, server)
		if err != nil {
			return last, nil, err
		}
		last = out.Cluster
		switch now := last.Draining; {
		case now == nil:
			return last, nil, fmt.Errorf("another caller ended the drain (rockpool drain --off)")
		case drained(now):
			return last, nil, nil
		}
		if text := remaining(last.Draining); text != printed {
			printed = text
			_, _ = fmt.Fprintf(s.Err, "rockpool: %s\n", text)
		}
		select {
		case <-again.C:
		case <-late:
			_, _ = fmt.Fprintf(s.Err, "rockpool: not empty after %v; the drain continues\n", c.Timeout)
			return last, command.ExitError(command.CodeLimit), nil
		case <-ctx.Done():
			return last, nil, ctx.Err() // a signal
		}
	}
}
