package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

// environment is the one that all rows use.
const environment = "bench"

// A bedConfig says what rows start.
type bedConfig struct {
	Nomad    *Nomad // that servers use; nil: they are on this machine
	Program  string // rockpool's own binary; "serve" starts a server
	Quick    bool   // a fifth of the operations: to see that it works
	GVisor   string // gVisor's program, as the setting gvisor-runtime names it; "": the rows that need it are left out
	Profiles string // directory for CPU profiles of the servers; "": none
	Progress io.Writer
}

// A bed is what one row has started. Its first server is the one whose CPU time
// and memory count.
type bed struct {
	bedConfig
	row     string
	floors  *floorProcess
	servers []*target
	closers []func() error // run in reverse
}

// ops is how often a round does something, if it is to do it n times.
func (b *bed) ops(n int) int {
	if b.Quick {
		return max(1, n/5)
	}
	return n
}

// onClose has do run when the row is over.
func (b *bed) onClose(do func() error) { b.closers = append(b.closers, do) }

// close ends all that the row started.
func (b *bed) close() error {
	var errs []error
	for _, do := range slices.Backward(b.closers) {
		errs = append(errs, do())
	}
	return errors.Join(errs...)
}

// directory makes a directory for the time of the row.
func (b *bed) directory() (string, error) {
	dir, err := os.MkdirTemp("", "rockpool-bench-")
	if err == nil {
		b.onClose(func() error { return os.RemoveAll(dir) })
	}
	return dir, err
}

var groups atomic.Int32 // so many names were given

// newGroup names a group that nothing else uses, so that what runs there can be
// told apart.
func newGroup() string {
	return fmt.Sprintf("rockpool/bench-%d-%d", os.Getpid(), groups.Add(1))
}

// serve starts a server that has so many finished executions and keeps so many
// idle runners, and waits for these.
func (b *bed) serve(ctx context.Context, runners, executions int) (*target, error) {
	return b.serveIn(ctx, runtime.IsolationNamespaces, runners, executions)
}

// serveIn has the runners isolated so.
func (b *bed) serveIn(ctx context.Context, isolation runtime.Isolation, runners, executions int) (*target, error) {
	dir, err := b.directory()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if err := fillStore(ctx, data, executions); err != nil {
		return nil, fmt.Errorf("fill the store: %w", err)
	}
	group := newGroup()
	s, err := startServer(ctx, launch{
		program: b.Program, data: data, group: group, listen: "127.0.0.1:0", profiled: b.Profiles != "",
		cluster: []string{"--cgroup-parent", group, "--on-stop", "remove", "--gvisor-runtime", b.GVisor,
			"--cpu-overcommit", strconv.Itoa(CPUOvercommit), "--memory-overcommit", strconv.Itoa(MemoryOvercommit)},
		overcommitted: true,
		env:           client.PutEnvironmentInput{Isolation: &isolation, Resources: &client.ResourcesInput{WorkspaceMiB: new(256), MemoryMiB: new(512)}}, // a replaced file is there twice for a moment
	})
	if err != nil {
		return nil, fmt.Errorf("start a server: %w", err)
	}
	b.servers = append(b.servers, s)
	b.onClose(s.stop)
	if err := s.fits(ctx, runners); err != nil {
		return nil, err
	}
	return s, s.keep(ctx, runners)
}

// claimed starts a server with so many idle runners, and claims one more.
func (b *bed) claimed(ctx context.Context, idle int) (s *target, runner string, err error) {
	if s, err = b.serve(ctx, idle, 0); err != nil {
		return nil, "", err
	}
	if runner, err = s.claim(ctx); err != nil {
		return nil, "", err
	}
	return s, runner, s.settle(ctx, idle)
}

// engine starts a server in this process.
func (b *bed) engine(ctx context.Context, runners int) (*benchEngine, error) {
	dir, err := b.directory()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if err := fillStore(ctx, data, 0); err != nil {
		return nil, fmt.Errorf("fill the store: %w", err)
	}
	engine, err := openBenchEngine(ctx, data, newGroup())
	if err != nil {
		return nil, fmt.Errorf("start an engine: %w", err)
	}
	b.onClose(engine.Close)
	return engine, engine.PutEnvironment(ctx, environment, runners)
}

// cpu returns the CPU time that the server and its runners have taken.
func (b *bed) cpu() (server, inside time.Duration, ok bool) {
	if len(b.servers) == 0 {
		return 0, 0, false
	}
	return b.servers[0].cpu()
}

func (b *bed) peakMiB() float64 {
	if len(b.servers) == 0 {
		return 0
	}
	return float64(peak(b.servers[0].pid())) / (1 << 20)
}

// until waits for something that has to be looked for.
func until(ctx context.Context, ok func() (bool, error)) error {
	tick := time.NewTicker(5 * time.Millisecond) // what is asked costs CPU time, too
	defer tick.Stop()
	for {
		if done, err := ok(); done || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
