package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
)

// GVisor returns the rows that compare runners with gVisor to runners with namespaces.
func GVisor() []rows.Row {
	const floor = "The same of a runner with namespaces, on a second server."
	return []rows.Row{{
		Name: "gvisor/first-output", GVisor: true,
		What:  "From startExecution (POST) of `echo` to the first output on an open WebSocket, in a runner with gVisor.",
		Floor: floor, Unit: measure.Milliseconds, Per: "start",
		Goals: []measure.Goal{{Of: "p50", AtMost: 15}},
		Open: func(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
			return comparedWithNamespaces(ctx, b, 2, func(ctx context.Context, s *bed.Server) (rows.Probe, error) {
				runner, err := s.Claim(ctx)
				if err != nil {
					return nil, err
				}
				k, err := s.Dial(ctx)
				if err != nil {
					return nil, err
				}
				b.OnClose(func() error { k.Close(); return nil })
				return func(ctx context.Context, r *measure.Round) error {
					return rows.Repeat(b.Ops(50), func() error { return rows.FirstOutput(ctx, s, k, runner, r) })
				}, s.Settle(ctx, 2)
			})
		},
	}, {
		Name: "gvisor/make", GVisor: true,
		What:  "From the request for a runner with gVisor until its agent has answered.",
		Floor: floor, Unit: measure.Milliseconds, Per: "runner",
		Open: func(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
			return comparedWithNamespaces(ctx, b, 0, func(_ context.Context, s *bed.Server) (rows.Probe, error) {
				return func(ctx context.Context, r *measure.Round) error {
					return rows.Repeat(b.Ops(5), func() error {
						return errors.Join(r.Time(func() error { return s.Keep(ctx, 1) }), s.Keep(ctx, 0))
					})
				}, nil
			})
		},
	}, {
		Name: "gvisor/memory", GVisor: true,
		What:  "Memory that the kernel charges to the cgroup of an idle, unused runner with gVisor.",
		Floor: floor, Unit: measure.KiB,
		Open: func(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
			n := b.Ops(10)
			p, err := comparedWithNamespaces(ctx, b, n, func(_ context.Context, s *bed.Server) (rows.Probe, error) {
				return func(_ context.Context, r *measure.Round) error { return charged(s.Group, n, r) }, nil
			})
			p.Rounds = 1
			return p, err
		},
	}}
}

// comparedWithNamespaces starts a server with gVisor and one with namespaces, and prepares their
// measurement.
func comparedWithNamespaces(ctx context.Context, b *bed.Bed, runners int, prepare func(context.Context, *bed.Server) (rows.Probe, error)) (rows.Pair, error) {
	var probes [2]rows.Probe
	for i, isolation := range []runtime.Isolation{runtime.IsolationGVisor, runtime.IsolationNamespaces} {
		s, err := b.ServeIn(ctx, isolation, runners, 0)
		if err != nil {
			return rows.Pair{}, err
		}
		if probes[i], err = prepare(ctx, s); err != nil {
			return rows.Pair{}, err
		}
	}
	return rows.Pair{Row: probes[0], Floor: probes[1]}, rows.Warm(ctx, probes[:]...)
}

// charged adds the memory that the kernel charges to each of n runners below a cgroup.
func charged(group string, n int, r *measure.Round) error {
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
		r.Add(used / 1024)
	}
	return nil
}
