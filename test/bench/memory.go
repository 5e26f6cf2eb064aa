package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

func memoryRows() []Row {
	const floor = "The same of a `sleep`, a C program that does nothing."
	return []Row{{
		Name:  "memory/runner",
		What:  "Private memory of a runner that is idle and has never been used: of its agent, which is all that is in it.",
		Floor: floor, Unit: KiB,
		Goals: []Goal{{Of: "p50", AtMost: 1024}},
		Open:  openRunnerMemory(),
	}, {
		Name:  "memory/runner-used",
		What:  "The same of a claimed runner in which nothing runs any more, after five executions of `true`.",
		Floor: floor, Unit: KiB,
		Open: openRunnerMemory("true", "true", "true", "true", "true"),
	}, {
		Name:  "memory/runner-flooded",
		What:  "The same after an execution that printed 10 MB.",
		Floor: floor, Unit: KiB,
		Open: openRunnerMemory("head -c 10000000 /dev/zero"),
	}, {
		Name:  "memory/subscription",
		What:  "Private memory that the server takes for each of 1,000 sockets, all subscribed to one execution that prints nothing.",
		Floor: "A bare WebSocket server, for each of as many.",
		Unit:  KiB,
		Open:  openSubscriptionMemory,
	}}
}

// idleAfter is by when an agent has given back what it doesn't need.
const idleAfter = 2 * time.Second

// openRunnerMemory looks at runners in which these commands have run.
func openRunnerMemory(commands ...string) func(context.Context, *bed) (pair, error) {
	return func(ctx context.Context, b *bed) (pair, error) {
		n := b.ops(20)
		idle := n
		if len(commands) > 0 {
			idle = 0
		}
		s, err := b.serve(ctx, idle, 0)
		if err != nil {
			return pair{}, err
		}
		for range n - idle {
			if err := use(ctx, s, commands); err != nil {
				return pair{}, err
			}
		}
		if err := pause(ctx, idleAfter); err != nil {
			return pair{}, err
		}
		row := func(_ context.Context, r *round) error {
			agents := inside(s.group)
			if len(agents) != n {
				return fmt.Errorf("%d processes in %d runners", len(agents), n)
			}
			for _, pid := range agents {
				r.add(float64(private(pid)) / 1024)
			}
			return nil
		}
		floor := func(ctx context.Context, r *round) error {
			return repeat(n, func() error {
				cmd := exec.CommandContext(ctx, "sleep", "1000")
				if err := cmd.Start(); err != nil {
					return err
				}
				defer cmd.Wait() //nolint:errcheck // it was killed
				// Once it sleeps, it has what it needs.
				err := until(ctx, func() (bool, error) {
					return field(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid), "State") == "S (sleeping)", nil
				})
				r.add(float64(private(cmd.Process.Pid)) / 1024)
				return errors.Join(err, cmd.Process.Kill())
			})
		}
		return pair{row: row, floor: floor, rounds: 1}, nil
	}
}

// use claims a runner and runs commands in it.
func use(ctx context.Context, s *target, commands []string) error {
	runner, err := s.claim(ctx)
	if err != nil {
		return err
	}
	for _, command := range commands {
		if err := s.run(ctx, runner, strings.Fields(command)...); err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func openSubscriptionMemory(ctx context.Context, b *bed) (pair, error) {
	s, runner, err := b.claimed(ctx, 0)
	if err != nil {
		return pair{}, err
	}
	execution, err := s.start(ctx, runner, "sleep", "1000")
	if err != nil {
		return pair{}, err
	}
	n := b.ops(1000)
	grown := func(pid int, dial func() (*socket, error)) probe {
		return func(ctx context.Context, r *round) error {
			before := private(pid)
			sockets, err := dialAll(n, dial)
			defer closeAll(sockets)
			if err == nil {
				err = pause(ctx, time.Second)
			}
			r.add(float64(private(pid)-before) / 1024 / float64(n))
			return err
		}
	}
	row := grown(s.pid(), func() (*socket, error) {
		k, err := s.dial(ctx)
		if err != nil {
			return nil, err
		}
		if err = k.subscribe(ctx, execution); err == nil {
			_, err = k.read(ctx) // that it has started
		}
		return k, err
	})
	fresh, err := startFloors(ctx) // the rows before have grown the other
	if err != nil {
		return pair{}, err
	}
	b.onClose(func() error { fresh.stop(); return nil })
	floor := grown(fresh.pid(), func() (*socket, error) { return fresh.dial(ctx, "/idle") })
	return pair{row: row, floor: floor, rounds: 1}, nil // a second time they would find what the first left
}
