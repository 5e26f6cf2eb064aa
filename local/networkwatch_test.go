package local

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/network/ports"
	"github.com/rockpool/rockpool/local/network/resolver"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/problems"
)

// An asked launcher answers after something has happened.
type asked struct {
	launcher
	happens func()
	says    error
	times   int
}

func (a *asked) Ask(context.Context, string, helper.Request) error {
	a.times++
	a.happens()
	return a.says
}

// A runner is ended where the sandbox that it has is certainly not kept to its
// policy, and not for one that it had.
func TestChangedFilters(t *testing.T) {
	changed := &launch.RefusalError{Line: "its table is gone", Changed: true}
	nothing := func(*entry) {}
	for name, row := range map[string]struct {
		before, meanwhile func(e *entry)
		says              error
		asked             int
		ended             bool
	}{
		"as it was made":          {nothing, nothing, nil, 1, false},
		"nobody can tell":         {nothing, nothing, &launch.RefusalError{Line: "fork: resource temporarily unavailable"}, 1, false},
		"changed":                 {nothing, nothing, changed, 1, true},
		"not made yet":            {func(e *entry) { e.fenced = 0 }, nothing, changed, 0, false},
		"being removed":           {func(e *entry) { e.removing = true }, nothing, changed, 0, false},
		"removed meanwhile":       {nothing, func(e *entry) { e.removing = true }, changed, 1, false},
		"gone meanwhile":          {nothing, func(e *entry) { e.runner.State = runtime.RunnerGone }, changed, 1, false},
		"destroyed meanwhile":     {nothing, func(e *entry) { e.fenced = 0 }, changed, 1, false},
		"started again meanwhile": {nothing, func(e *entry) { e.fenced = 2 }, changed, 1, false},
	} {
		core, logged := observer.New(zap.ErrorLevel)
		e := &entry{fenced: 1, task: taskrunner.New(taskrunner.Config{}, taskrunner.State{Phase: taskrunner.Running})}
		e.runner.State, e.runner.Environment.Network.Access = runtime.RunnerIdle, true
		c := &Cluster{log: zap.New(core), entries: map[runtime.RunnerID]*entry{"a": e}, config: Config{Network: &Network{Offer: network.Offer{}}}}
		launcher := &asked{says: row.says, happens: func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			row.meanwhile(e)
		}}
		c.launcher = launcher
		row.before(e)
		c.verifyNetworks(t.Context(), all)
		if launcher.times != row.asked || (logged.Len() > 0) != row.ended {
			t.Errorf("%s: asked %d times, ended: %v", name, launcher.times, logged.All())
		}
	}
}

// TestListeningForFiltersGoesOn: what fails for a while is tried again, and what was
// missed meanwhile is looked for. What isn't allowed stays so.
func TestListeningForFiltersGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var began, missed int
		network := &Network{listen: func(ctx context.Context, told func(string)) error {
			if began++; began <= 2 {
				return unix.EMFILE
			}
			told("rockpool")
			<-ctx.Done()
			return nil
		}}
		c := &Cluster{log: zap.NewNop(), config: Config{Network: network}}
		var tables []string
		listen := func(ctx context.Context) {
			c.listenForFilters(ctx, time.Minute, func(table string) {
				if table == "" {
					missed++
				}
				tables = append(tables, table)
			})
		}
		done := make(chan struct{})
		go func() { defer close(done); listen(ctx) }()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if began != 3 || missed != 2 || len(tables) != 3 || tables[2] != "rockpool" {
			t.Errorf("it began %d times; told was %q", began, tables)
		}
		cancel()
		<-done

		network.listen = func(context.Context, func(string)) error { began++; return unix.EPERM }
		began = 0
		listen(t.Context())
		if began != 1 {
			t.Errorf("it was tried %d times without permission", began)
		}
	})
}

// TestPortsAreMappedOnceTheyCanBe: another program had the port when the server was
// started. What health says of it goes with that, or with the runner.
func TestPortsAreMappedOnceTheyCanBe(t *testing.T) {
	for name, ends := range map[string]bool{"mapped": false, "the runner ends": true} {
		t.Run(name, func(t *testing.T) {
			taken, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			e := &entry{id: "a", address: netip.MustParseAddr("127.0.0.1")}
			e.runner.Environment.Network.ExposedPorts = []int{80}
			e.runner.Ports = []runtime.PortMapping{{ExposedPort: 80, Address: taken.Addr().String()}}
			c := &Cluster{problems: problems.New(zap.NewNop()), entries: map[runtime.RunnerID]*entry{"a": e}, network: &networking{ports: &ports.Mapper{}, resolver: &resolver.Resolver{}}}
			defer c.network.ports.CloseAll()
			reported := func() int {
				c.mu.Lock()
				defer c.mu.Unlock()
				return len(c.visible())
			}
			h := &networkHook{c, e}
			if err := h.Poststart(t.Context(), taskrunner.PoststartRequest{Restored: true}, nil); err == nil || reported() != 1 || e.runner.Ports != nil {
				t.Fatalf("%v, %d problems, mapped are %v", err, reported(), e.runner.Ports)
			}
			if c.mapPorts(); reported() != 1 {
				t.Error("the problem is gone while the port is taken")
			}
			if err := taken.Close(); err != nil {
				t.Fatal(err)
			}
			if ends {
				h.close()
			}
			c.mapPorts()
			if reported() != 0 {
				t.Error("the problem is still there")
			}
			if mapped := e.runner.Ports != nil && e.runner.Ports[0].Address == taken.Addr().String(); mapped == ends {
				t.Errorf("mapped are %v", e.runner.Ports)
			}
		})
	}
}
