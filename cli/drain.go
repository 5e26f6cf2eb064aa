package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/rockpool/rockpool/client"
)

type drainCommand struct {
	serverFlag
	outputFlag
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

// A draining is what the API says of one.
type draining struct {
	Since                        time.Time
	Claimed, Leaving, Executions int
}

func (d draining) done() bool { return d.Claimed+d.Leaving+d.Executions == 0 }

func (d draining) String() string {
	if d.done() {
		return "nothing is left"
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
	return strings.Join(left, ", ") + " left"
}

const drainingFields = ` draining { since claimed leaving executions } `

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
	server, err := c.client()
	if err != nil {
		return err
	}
	const mutation = `mutation($in: DrainClusterInput!) { drainCluster(input: $in) { cluster {` + drainingFields + `} } }`
	var out struct {
		DrainCluster struct{ Cluster json.RawMessage }
	}
	if err := ask(ctx, server, mutation, map[string]any{"in": map[string]any{"draining": !c.Off}}, &out); err != nil {
		return err
	}
	last := out.DrainCluster.Cluster
	var code error
	if c.Wait {
		if last, code, err = c.wait(ctx, s, server); err != nil {
			return err
		}
	}
	now, err := drainingIn(last)
	if err != nil {
		return err
	}
	line := "it doesn't drain: pools fill up"
	if now != nil {
		line = "draining: " + now.String()
	}
	if err := c.print(s.Out, last, table{head: []string{line}}); err != nil {
		return err
	}
	return code
}

// drainEvery is how often the server is asked for what is left.
const drainEvery = 500 * time.Millisecond

// wait returns once nothing is left, or after Timeout, then with the exit code.
// It says how far it has come whenever that changes.
func (c *drainCommand) wait(ctx context.Context, s Streams, server *client.Client) (last json.RawMessage, code, err error) {
	var late <-chan time.Time
	if c.Timeout > 0 {
		late = time.After(c.Timeout)
	}
	again := time.NewTicker(drainEvery)
	defer again.Stop()
	for said := ""; ; {
		var out struct{ Cluster json.RawMessage }
		if err := ask(ctx, server, `{ cluster {`+drainingFields+`} }`, nil, &out); err != nil {
			return nil, nil, err
		}
		now, err := drainingIn(out.Cluster)
		switch {
		case err != nil:
			return nil, nil, err
		case now == nil:
			return nil, nil, fmt.Errorf("somebody ended the draining")
		case now.done():
			return out.Cluster, nil, nil
		}
		if text := now.String(); text != said {
			said = text
			_, _ = fmt.Fprintf(s.Err, "rockpool: draining: %s\n", text)
		}
		select {
		case <-again.C:
		case <-late:
			_, _ = fmt.Fprintf(s.Err, "rockpool: not done after %v; it goes on draining\n", c.Timeout)
			return out.Cluster, ExitError(codeLimit), nil
		case <-ctx.Done():
			return nil, nil, ctx.Err() // a signal
		}
	}
}

// drainingIn returns what an answer's cluster says; nil: it doesn't drain.
func drainingIn(cluster json.RawMessage) (*draining, error) {
	var out struct{ Draining *draining }
	if err := json.Unmarshal(cluster, &out); err != nil {
		return nil, fmt.Errorf("read an answer: %w", err)
	}
	return out.Draining, nil
}
