package runners

import (
	"context"
	"os/exec"
	"syscall"

	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
)

// Making returns the row of runners made per second.
func Making() []rows.Row {
	return []rows.Row{{
		Name:  "make/50",
		What:  "Runners made per second, from the request for 50 until all are idle, so that their agents have answered.",
		Floor: "os/exec: `true` in new namespaces of all kinds, two at a time, without root directory, cgroups or agent.",
		Unit:  measure.PerSecond, Per: "runner",
		Goals: []measure.Goal{{Of: "p50", AtLeast: 60}},
		Open:  openMaking,
	}}
}

// openMaking prepares the row of filling a pool. Emptying it isn't measured.
func openMaking(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
	s, err := b.Serve(ctx, 0, 0)
	if err != nil {
		return rows.Pair{}, err
	}
	n := b.Ops(50)
	if err := s.Fits(ctx, n); err != nil {
		return rows.Pair{}, err
	}
	row := func(ctx context.Context, r *measure.Round) error {
		if err := r.Rate(float64(n), func() error { return s.Keep(ctx, n) }); err != nil {
			return err
		}
		return s.Keep(ctx, 0)
	}
	floor := func(ctx context.Context, r *measure.Round) error {
		return r.Rate(float64(n), func() error {
			return rows.Concurrently(ctx, 2, n, func(ctx context.Context, _ int) error { return inNamespaces(ctx).Run() })
		})
	}
	return rows.Pair{Row: row, Floor: floor, Rounds: 5}, rows.Warm(ctx, row, floor)
}

// inNamespaces returns `true` in new namespaces of the kinds that a sandbox has.
func inNamespaces(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "true")
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC |
			syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWCGROUP,
		UidMappings: ids, GidMappings: ids,
	}
	return cmd
}
