package main

import (
	"context"
	"os/exec"
	"syscall"
)

func makingRows() []Row {
	return []Row{{
		Name:  "make/50",
		What:  "Runners made per second, from the wish for 50 until all are idle: their agents have answered.",
		Floor: "os/exec: `true` in new namespaces of all kinds, two at a time; no root directory, no cgroups, no agent.",
		Unit:  PerSecond, Per: "runner",
		Goals: []Goal{{Of: "p50", AtLeast: 60}},
		Open:  openMaking,
	}}
}

func openMaking(ctx context.Context, b *bed) (pair, error) {
	s, err := b.serve(ctx, 0, 0)
	if err != nil {
		return pair{}, err
	}
	n := b.ops(50)
	if err := s.fits(ctx, n); err != nil {
		return pair{}, err
	}
	row := func(ctx context.Context, r *round) error {
		if err := r.rate(float64(n), func() error { return s.keep(ctx, n) }); err != nil {
			return err
		}
		return s.keep(ctx, 0)
	}
	floor := func(ctx context.Context, r *round) error {
		return r.rate(float64(n), func() error {
			return atOnce(ctx, 2, n, func(ctx context.Context, _ int) error { return inNamespaces(ctx).Run() })
		})
	}
	return pair{row: row, floor: floor, rounds: 5}, warm(ctx, row, floor)
}

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
