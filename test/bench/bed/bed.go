// Package bed starts what a row needs: servers on this machine or on Nomad, tasks of Nomad alone,
// and directories. Closing the row's bed ends all of it.
package bed

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
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/bench/floors"
	"github.com/rockpool/rockpool/test/bench/judge"
	"github.com/rockpool/rockpool/test/bench/usage"
)

// Environment is the environment of all rows.
const Environment = "bench"

// A Config selects the programs and services that rows use.
type Config struct {
	Nomad    *Nomad       // of the servers; nil means servers with local runners
	Peer     *judge.Judge // replaces the floor of rows that it supports; nil means none
	Program  string       // rockpool's own binary; "serve" starts a server
	Quick    bool         // a fifth of the operations, to check that the bench works
	GVisor   string       // gVisor's program, like the setting gvisor-runtime; "" means its rows are left out
	Profiles string       // directory for CPU profiles of the servers; "" means none
	Progress io.Writer
}

// A Bed holds all that one row has started. The CPU time and memory of its first server are
// measured.
type Bed struct {
	Config
	Name    string // name of the row
	Floors  *floors.Process
	servers []*Server
	closers []func() error // run in reverse order
}

// Ops returns how often a round repeats something that it normally repeats n times.
func (b *Bed) Ops(n int) int {
	if b.Quick {
		return max(1, n/5)
	}
	return n
}

// OnClose registers a function to run when the row is over.
func (b *Bed) OnClose(do func() error) { b.closers = append(b.closers, do) }

// Close ends everything that the row started.
func (b *Bed) Close() error {
	var errs []error
	for _, do := range slices.Backward(b.closers) {
		errs = append(errs, do())
	}
	return errors.Join(errs...)
}

// Directory makes a directory that Close removes.
func (b *Bed) Directory() (string, error) {
	dir, err := os.MkdirTemp("", "rockpool-bench-")
	if err == nil {
		b.OnClose(func() error { return os.RemoveAll(dir) })
	}
	return dir, err
}

var groups atomic.Int32 // number of names given

// NewGroup returns a new name for a cgroup, so that its CPU time and memory belong to one server.
func NewGroup() string {
	return fmt.Sprintf("rockpool/bench-%d-%d", os.Getpid(), groups.Add(1))
}

// Serve starts a server with this many idle runners and finished executions, and waits for the
// runners.
func (b *Bed) Serve(ctx context.Context, runners, executions int) (*Server, error) {
	return b.ServeIn(ctx, runtime.IsolationNamespaces, runners, executions)
}

// ServeIn is Serve with an isolation tier.
func (b *Bed) ServeIn(ctx context.Context, isolation runtime.Isolation, runners, executions int) (*Server, error) {
	dir, err := b.Directory()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if err := fillStore(ctx, data, executions); err != nil {
		return nil, fmt.Errorf("fill the store: %w", err)
	}
	languages := filepath.Join(dir, "languages.yaml")
	if err := os.WriteFile(languages, []byte("languages: [{id: python3, environments: ["+Environment+"]}]\n"), 0o600); err != nil {
		return nil, err
	}
	group := NewGroup()
	s, err := startServer(ctx, launch{
		program: b.Program, data: data, Group: group, listen: "127.0.0.1:0", profiled: b.Profiles != "",
		cluster: []string{"--cgroup-parent", group, "--on-stop", "remove", "--gvisor-runtime", b.GVisor, "--compat", config.CompatJobe, "--languages", languages,
			"--cpu-overcommit", strconv.Itoa(CPUOvercommit), "--memory-overcommit", strconv.Itoa(MemoryOvercommit)},
		overcommitted: true,
		env:           client.PutEnvironmentInput{Isolation: &isolation, Resources: &client.ResourcesInput{WorkspaceMiB: new(256), MemoryMiB: new(512)}}, // a replaced file takes its space twice for a moment
	})
	if err != nil {
		return nil, fmt.Errorf("start a server: %w", err)
	}
	b.servers = append(b.servers, s)
	b.OnClose(s.stop)
	if err := s.Fits(ctx, runners); err != nil {
		return nil, err
	}
	return s, s.Keep(ctx, runners)
}

// Claimed starts a server with this many idle runners, and claims one more.
func (b *Bed) Claimed(ctx context.Context, idle int) (s *Server, runner string, err error) {
	if s, err = b.Serve(ctx, idle, 0); err != nil {
		return nil, "", err
	}
	if runner, err = s.Claim(ctx); err != nil {
		return nil, "", err
	}
	return s, runner, s.Settle(ctx, idle)
}

// Engine starts a server in this process, which is used without the API.
func (b *Bed) Engine(ctx context.Context, runners int) (*Engine, error) {
	dir, err := b.Directory()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if err := fillStore(ctx, data, 0); err != nil {
		return nil, fmt.Errorf("fill the store: %w", err)
	}
	engine, err := openEngine(ctx, data, NewGroup())
	if err != nil {
		return nil, fmt.Errorf("start an engine: %w", err)
	}
	b.OnClose(engine.Close)
	return engine, engine.PutEnvironment(ctx, Environment, runners)
}

// CPU returns the CPU time that the server and its runners have used.
func (b *Bed) CPU() (server, inside time.Duration, ok bool) {
	if len(b.servers) == 0 {
		return 0, 0, false
	}
	return b.servers[0].cpu()
}

// PeakMiB is the server's peak of resident memory.
func (b *Bed) PeakMiB() float64 {
	if len(b.servers) == 0 {
		return 0
	}
	return float64(usage.Peak(b.servers[0].PID())) / (1 << 20)
}

// Until polls ok until it is true, and returns its first error. Unlike test/wait it doesn't need a
// test.
func Until(ctx context.Context, ok func() (bool, error)) error {
	tick := time.NewTicker(5 * time.Millisecond) // a poll costs CPU time too
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
