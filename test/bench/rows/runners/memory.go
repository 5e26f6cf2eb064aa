package runners

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/floors"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
	"github.com/rockpool/rockpool/test/bench/socket"
	"github.com/rockpool/rockpool/test/bench/usage"
)

// Memory returns the rows of the memory of a runner and of a subscription.
func Memory() []rows.Row {
	const floor = "The private memory of `sleep`, a C program that does nothing."
	return []rows.Row{{
		Name:  "memory/runner",
		What:  "Private memory of an idle, unused runner: of its agent, the only process in it.",
		Floor: floor, Unit: measure.KiB,
		Goals: []measure.Goal{{Of: "p50", AtMost: 1024}},
		Open:  openRunnerMemory(),
	}, {
		Name:  "memory/runner-used",
		What:  "The same of a claimed runner after five executions of `true`, when nothing runs in it.",
		Floor: floor, Unit: measure.KiB,
		Open: openRunnerMemory("true", "true", "true", "true", "true"),
	}, {
		Name:  "memory/runner-flooded",
		What:  "The same after an execution that printed 10 MB.",
		Floor: floor, Unit: measure.KiB,
		Open: openRunnerMemory("head -c 10000000 /dev/zero"),
	}, {
		Name:  "memory/subscription",
		What:  "Private memory of the server for each of 1,000 sockets, all subscribed to one execution that prints nothing.",
		Floor: "The same of a bare WebSocket server with as many sockets.",
		Unit:  measure.KiB,
		Open:  openSubscriptionMemory,
	}}
}

// After idleAfter an agent has freed the memory that it doesn't need.
const idleAfter = 2 * time.Second

// openRunnerMemory measures runners in which these commands have run.
func openRunnerMemory(commands ...string) func(context.Context, *bed.Bed) (rows.Pair, error) {
	return func(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
		n := b.Ops(20)
		idle := n
		if len(commands) > 0 {
			idle = 0
		}
		s, err := b.Serve(ctx, idle, 0)
		if err != nil {
			return rows.Pair{}, err
		}
		for range n - idle {
			if err := use(ctx, s, commands); err != nil {
				return rows.Pair{}, err
			}
		}
		if err := pause(ctx, idleAfter); err != nil {
			return rows.Pair{}, err
		}
		row := func(_ context.Context, r *measure.Round) error {
			agents := usage.Inside(s.Group)
			if len(agents) != n {
				return fmt.Errorf("%d processes in %d runners", len(agents), n)
			}
			for _, pid := range agents {
				r.Add(float64(usage.Private(pid)) / 1024)
			}
			return nil
		}
		floor := func(ctx context.Context, r *measure.Round) error {
			return rows.Repeat(n, func() error {
				cmd := exec.CommandContext(ctx, "sleep", "1000")
				if err := cmd.Start(); err != nil {
					return err
				}
				defer cmd.Wait() //nolint:errcheck // always an error: it was killed
				// A sleeping process has allocated all that it needs.
				err := bed.Until(ctx, func() (bool, error) {
					return usage.Field(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid), "State") == "S (sleeping)", nil
				})
				r.Add(float64(usage.Private(cmd.Process.Pid)) / 1024)
				return errors.Join(err, cmd.Process.Kill())
			})
		}
		return rows.Pair{Row: row, Floor: floor, Rounds: 1}, nil
	}
}

// use claims a runner and runs commands in it.
func use(ctx context.Context, s *bed.Server, commands []string) error {
	runner, err := s.Claim(ctx)
	if err != nil {
		return err
	}
	for _, command := range commands {
		if err := s.Run(ctx, runner, strings.Fields(command)...); err != nil {
			return err
		}
	}
	return nil
}

// pause waits for d, or returns why ctx ended before.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// openSubscriptionMemory prepares the row of the server's private memory for each subscription, in
// KiB.
func openSubscriptionMemory(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
	s, runner, err := b.Claimed(ctx, 0)
	if err != nil {
		return rows.Pair{}, err
	}
	execution, err := s.Start(ctx, runner, "sleep", "1000")
	if err != nil {
		return rows.Pair{}, err
	}
	n := b.Ops(1000)
	grown := func(pid int, dial func() (*socket.Conn, error)) rows.Probe {
		return func(ctx context.Context, r *measure.Round) error {
			before := usage.Private(pid)
			sockets, err := socket.DialAll(n, dial)
			defer socket.CloseAll(sockets)
			if err == nil {
				err = pause(ctx, time.Second)
			}
			r.Add(float64(usage.Private(pid)-before) / 1024 / float64(n))
			return err
		}
	}
	row := grown(s.PID(), func() (*socket.Conn, error) {
		k, err := s.Dial(ctx)
		if err != nil {
			return nil, err
		}
		if err = k.Subscribe(ctx, execution); err == nil {
			_, err = k.Read(ctx) // it has started
		}
		return k, err
	})
	fresh, err := floors.Start(ctx) // the previous rows have grown the other process
	if err != nil {
		return rows.Pair{}, err
	}
	b.OnClose(func() error { fresh.Stop(); return nil })
	floor := grown(fresh.PID(), func() (*socket.Conn, error) { return fresh.Dial(ctx, "/idle") })
	return rows.Pair{Row: row, Floor: floor, Rounds: 1}, nil // a second round would reuse memory of the first
}
