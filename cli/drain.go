package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rockpool/rockpool/cli/connection"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
)

type drainCommand struct {
	connection.Flags
	output.Format
	Off     bool          `help:"End the draining: pools fill again."`
	Wait    bool          `help:"Wait until no runner and no execution is left, and say what is."`
	Timeout time.Duration `default:"0s" placeholder:"TIME" help:"With --wait: give up after this long; 0: never. (${default})"`
}

// Help is what its --help says beyond the flags.
func (drainCommand) Help() string {
	return `Before maintenance: no runner starts any more, and nobody new gets one. Idle runners go at once; claimed ones, and what runs in them, end as they would. It lasts, over restarts of the server too, until --off.

    rockpool drain
    rockpool drain --wait --timeout 10m && systemctl stop rockpool
    rockpool drain --off

It can be repeated: what is so already stays so.

Exit codes:
    0    it drains; with --wait: and nothing is left; with --off: it doesn't drain any more
    124  with --wait and --timeout: something is left; it goes on draining
    125  it could not be asked for
    130  waiting was interrupted; it goes on draining`
}

func drained(d *client.Draining) bool { return d.Claimed+d.Leaving+d.Executions == 0 }

// left says what is left of a draining; nil: there is none.
func left(d *client.Draining) string {
	if d == nil {
		return "it doesn't drain: pools fill up"
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

// Run drains, or ends that.
func (c *drainCommand) Run(s Streams) error {
	switch {
	case c.Off && c.Wait:
		return fmt.Errorf("--off ends the draining: there is nothing to --wait for")
	case c.Timeout < 0 || c.Timeout > 0 && !c.Wait:
		return fmt.Errorf("--timeout is %v, but must be above 0, and stand beside --wait", c.Timeout)
	}
	ctx, stop := stoppable()
	defer stop()
	server, err := c.Patient()
	if err != nil {
		return err
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
	if err := c.Print(s.Out, last, output.Table{Head: []string{left(last.Draining)}}); err != nil {
		return err
	}
	return code
}

// drainEvery is how often the server is asked for what is left.
const drainEvery = 500 * time.Millisecond

// wait returns once nothing is left, or after Timeout, then with the exit code.
// It says how far it has come whenever that changes.
func (c *drainCommand) wait(ctx context.Context, s Streams, server client.Sender) (last client.Cluster, code, err error) {
	var late <-chan time.Time
	if c.Timeout > 0 {
		late = time.After(c.Timeout)
	}
	again := time.NewTicker(drainEvery)
	defer again.Stop()
	for said := ""; ; {
		out, err := client.GetCluster(ctx, server)
		if err != nil {
			return last, nil, err
		}
		last = out.Cluster
		switch now := last.Draining; {
		case now == nil:
			return last, nil, fmt.Errorf("somebody ended the draining")
		case drained(now):
			return last, nil, nil
		}
		if text := left(last.Draining); text != said {
			said = text
			_, _ = fmt.Fprintf(s.Err, "rockpool: %s\n", text)
		}
		select {
		case <-again.C:
		case <-late:
			_, _ = fmt.Fprintf(s.Err, "rockpool: not done after %v; it goes on draining\n", c.Timeout)
			return last, ExitError(codeLimit), nil
		case <-ctx.Done():
			return last, nil, ctx.Err() // a signal
		}
	}
}
