package sustained

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
)

//go:embed fresh/main.c
var freshSource string

// noFloor is the note of a row without its floor.
func noFloor() string { return "its floor is missing: there is no C compiler (cc)" }

// A fresh is the compiled program fresh/main.c.
type fresh struct {
	program string
	group   string
}

// openFresh compiles it. Without a compiler it returns nil and the row's note.
func openFresh(ctx context.Context, b *bed.Bed) (*fresh, func() string, error) {
	program, err := compile(ctx, b, freshSource)
	if errors.Is(err, measure.ErrNoFit) {
		return nil, noFloor, nil
	}
	return &fresh{program: program, group: bed.NewGroup()}, nil, err
}

// freshProgram runs the job in sandboxes of the C program, two at a time.
func freshProgram(ctx context.Context, b *bed.Bed, j job, files files) (rows.Probe, func() string, error) {
	f, note, err := openFresh(ctx, b)
	if f == nil || err != nil {
		return nil, note, err
	}
	argv := j.argv
	if len(files) > 0 { // the C program executes a file that it opened outside of the sandbox
		dir, err := b.Directory()
		if err != nil {
			return nil, nil, err
		}
		argv = append([]string{filepath.Join(dir, argv[0])}, argv[1:]...)
		if err := os.WriteFile(argv[0], files["program"], 0o755); err != nil { //nolint:gosec // another user inside executes it
			return nil, nil, err
		}
	}
	return f.running(b.Ops(300), argv), nil, nil
}

// running starts a program n times per round.
func (f *fresh) running(n int, argv []string) rows.Probe {
	const together = 2
	return func(ctx context.Context, r *measure.Round) error {
		each := max(1, n/together)
		took := make([][]time.Duration, together)
		err := r.Rate(float64(each*together), func() error {
			return rows.Concurrently(ctx, together, together, func(ctx context.Context, worker int) (err error) {
				took[worker], err = f.do(ctx, fmt.Sprint(f.group, "-", worker), "run", each, argv...)
				return err
			})
		})
		for _, times := range took {
			for _, t := range times {
				r.Took(t)
			}
		}
		return err
	}
}

// do runs the C program, and returns the duration of each of its n operations.
func (f *fresh) do(ctx context.Context, group, what string, n int, argv ...string) ([]time.Duration, error) {
	cmd := exec.CommandContext(ctx, f.program, append([]string{what, group, strconv.Itoa(n)}, argv...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // then it removes its cgroups
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // signals from a terminal don't reach it
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("the C program: %w: %s", err, strings.TrimSpace(complaints.String()))
	}
	times := make([]time.Duration, 0, n)
	for _, field := range strings.Fields(string(out)) {
		micros, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		times = append(times, time.Duration(micros)*time.Microsecond)
	}
	return times, nil
}
