package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rockpool/rockpool/runtime"
)

// gvisorRows stand beside the same with namespaces, on a second server.
func gvisorRows() []Row {
	const floor = "The same of a runner with namespaces, on a second server."
	return []Row{{
		Name: "gvisor/first-output", GVisor: true,
		What:  "From startExecution (POST) of `echo` to the first output on a WebSocket that is open already, in a runner with gVisor.",
		Floor: floor, Unit: Milliseconds, Per: "start",
		Goals: []Goal{{Of: "p50", AtMost: 15}},
		Open: func(ctx context.Context, b *bed) (pair, error) {
			return besideNamespaces(ctx, b, 2, func(ctx context.Context, s *target) (probe, error) {
				runner, err := s.claim(ctx)
				if err != nil {
					return nil, err
				}
				k, err := s.dial(ctx)
				if err != nil {
					return nil, err
				}
				b.onClose(func() error { k.close(); return nil })
				return func(ctx context.Context, r *round) error {
					return repeat(b.ops(50), func() error { return firstOutput(ctx, s, k, runner, r) })
				}, s.settle(ctx, 2)
			})
		},
	}, {
		Name: "gvisor/make", GVisor: true,
		What:  "A runner with gVisor, from the wish for it until its agent has answered.",
		Floor: floor, Unit: Milliseconds, Per: "runner",
		Open: func(ctx context.Context, b *bed) (pair, error) {
			return besideNamespaces(ctx, b, 0, func(_ context.Context, s *target) (probe, error) {
				return func(ctx context.Context, r *round) error {
					return repeat(b.ops(5), func() error {
						return errors.Join(r.time(func() error { return s.keep(ctx, 1) }), s.keep(ctx, 0))
					})
				}, nil
			})
		},
	}, {
		Name: "gvisor/memory", GVisor: true,
		What:  "Memory that the kernel charges to the group of a runner with gVisor that is idle and has never been used.",
		Floor: floor, Unit: KiB,
		Open: func(ctx context.Context, b *bed) (pair, error) {
			n := b.ops(10)
			p, err := besideNamespaces(ctx, b, n, func(_ context.Context, s *target) (probe, error) {
				return func(_ context.Context, r *round) error { return charged(s.group, n, r) }, nil
			})
			p.rounds = 1
			return p, err
		},
	}}
}

// besideNamespaces makes a server whose runners have gVisor, one whose runners
// don't, and what measures them.
func besideNamespaces(ctx context.Context, b *bed, runners int, prepare func(context.Context, *target) (probe, error)) (pair, error) {
	var probes [2]probe
	for i, isolation := range []runtime.Isolation{runtime.IsolationGVisor, runtime.IsolationNamespaces} {
		s, err := b.serveIn(ctx, isolation, runners, 0)
		if err != nil {
			return pair{}, err
		}
		if probes[i], err = prepare(ctx, s); err != nil {
			return pair{}, err
		}
	}
	return pair{row: probes[0], floor: probes[1]}, warm(ctx, probes[:]...)
}

// charged adds what n runners below a group are charged.
func charged(group string, n int, r *round) error {
	files, _ := filepath.Glob("/sys/fs/cgroup/memory/" + group + "/*/memory.usage_in_bytes")
	if len(files) == 0 {
		files, _ = filepath.Glob("/sys/fs/cgroup/" + group + "/*/memory.current")
	}
	if len(files) != n {
		return fmt.Errorf("%d groups of %d runners", len(files), n)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		used, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
		if err != nil {
			return err
		}
		r.add(used / 1024)
	}
	return nil
}
