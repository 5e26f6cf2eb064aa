package access

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/health"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An owner is a runner that may be ending.
type owner struct {
	leaving bool
	ends    []string
	ports   []runtime.PortMapping
}

func (o *owner) PortsMapped(at []runtime.PortMapping) { o.ports = at }
func (o *owner) Ending() bool                         { return o.leaving }
func (o *owner) StopOutside(message string)           { o.ends = append(o.ends, message) }

// opened returns an Access whose helper answers with ask.
func opened(ask func() error) *Access {
	return &Access{
		config: &Config{}, log: zap.NewNop(), problems: health.NewProblems(zap.NewNop()), runners: map[runtime.RunnerID]*Runner{},
		helper: Helper{Do: func(context.Context, string, helper.Request) error { return ask() }},
		ports:  &portMapper{}, resolver: &resolver{},
	}
}

var machine = netip.MustParseAddr("127.0.0.1")

// A runner is ended if the filter of its present sandbox was certainly changed, not that of an
// earlier sandbox.
func TestRunnerWithChangedFilterIsEnded(t *testing.T) {
	changed := &launch.RefusalError{Line: "its table is gone", Changed: true}
	nothing := func(*Runner, *owner) {}
	leaves := func(_ *Runner, o *owner) { o.leaving = true }
	drop := func(r *Runner, _ *owner) { r.Drop() }
	for name, row := range map[string]struct {
		before, meanwhile func(*Runner, *owner)
		says              error
		asked             int
		ended             bool
	}{
		"unchanged: goes on":                 {nothing, nothing, nil, 1, false},
		"unknown: goes on":                   {nothing, nothing, &launch.RefusalError{Line: "fork: resource temporarily unavailable"}, 1, false},
		"changed: ends":                      {nothing, nothing, changed, 1, true},
		"no sandbox: not verified":           {drop, nothing, changed, 0, false},
		"ending: not verified":               {leaves, nothing, changed, 0, false},
		"ending meanwhile: goes on":          {nothing, leaves, changed, 1, false},
		"sandbox removed meanwhile: goes on": {nothing, drop, changed, 1, false},
		"next sandbox meanwhile: goes on":    {nothing, func(r *Runner, _ *owner) { r.Drop(); r.Record(1, 2, machine) }, changed, 1, false},
	} {
		var r *Runner
		o, asked := &owner{}, 0
		a := opened(func() error {
			asked++
			row.meanwhile(r, o)
			return row.says
		})
		core, logged := observer.New(zap.ErrorLevel)
		a.log = zap.New(core)
		r = a.Runner("a", "/rockpool/a", runtime.Network{Access: true}, nil, o)
		r.Record(1, 1, machine)
		row.before(r, o)
		a.Verify(t.Context())
		if asked != row.asked || (logged.Len() > 0) != row.ended || (len(o.ends) > 0) != row.ended {
			t.Errorf("%s: verified %d times, ended: %v, %v", name, asked, logged.All(), o.ends)
		}
	}
}

// TestRestoreRetriesWhileUndecided: a new server retries for a while if the state is unknown, and
// accepts a certain result immediately.
func TestRestoreRetriesWhileUndecided(t *testing.T) {
	nobody, changed, final := &launch.RefusalError{Line: "fork: resource temporarily unavailable"}, &launch.RefusalError{Line: "gone", Changed: true}, &launch.RefusalError{Line: "no", Final: true}
	for _, test := range []struct {
		says  []error
		want  error
		asked int
	}{
		{[]error{nobody, nobody, errors.New("a broken connection"), nil}, nil, 4},
		{[]error{nobody, changed}, changed, 2},
		{[]error{final, nil}, final, 1},
		{slices.Repeat([]error{nobody}, 100), nobody, int(restoreWithin / restoreEvery)},
	} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			a := opened(func() error { asked++; return test.says[asked-1] })
			r := a.Runner("a", "/rockpool/a", runtime.Network{Access: true}, nil, &owner{})
			if err := r.Restore(t.Context(), 1); !errors.Is(err, test.want) || asked < test.asked || asked > test.asked+1 {
				t.Errorf("%v: after %d times %v", test.says, asked, err)
			}
		})
	}
}

// TestListeningForFiltersIsRetried: after a temporary error it retries, and checks everything that
// it missed. A lack of permission is permanent.
func TestListeningForFiltersIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var began, missed int
		config := &Config{Listen: func(ctx context.Context, told func(string)) error {
			if began++; began <= 2 {
				return unix.EMFILE
			}
			told("rockpool")
			<-ctx.Done()
			return nil
		}}
		a := &Access{log: zap.NewNop(), config: config}
		var tables []string
		listen := func(ctx context.Context) {
			a.listen(ctx, time.Minute, func(table string) {
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
			t.Errorf("it began %d times; it reported %q", began, tables)
		}
		cancel()
		<-done

		config.Listen = func(context.Context, func(string)) error { began++; return unix.EPERM }
		began = 0
		listen(t.Context())
		if began != 1 {
			t.Errorf("it was tried %d times without permission, want 1", began)
		}
	})
}

// TestUnmappedPortsAreRetried: another program used the port when the server started. The reported
// problem ends with the mapping or with the runner.
func TestUnmappedPortsAreRetried(t *testing.T) {
	for name, ends := range map[string]bool{"mapped": false, "the runner ends": true} {
		t.Run(name, func(t *testing.T) {
			taken, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			a, o := opened(func() error { return nil }), &owner{}
			defer a.ports.CloseAll()
			reported := func() int { return len(a.problems.All()) }
			r := a.Runner("a", "/rockpool/a", runtime.Network{ExposedPorts: []int{80}}, []runtime.PortMapping{{ExposedPort: 80, Address: taken.Addr().String()}}, o)
			r.Record(1, 1, machine)
			if err := r.Map(true); err != nil || reported() != 1 || o.ports != nil {
				t.Fatalf("%v, %d problems, mapped are %v", err, reported(), o.ports)
			}
			if a.mapPorts(); reported() != 1 {
				t.Error("the problem is gone while the port is taken")
			}
			if err := taken.Close(); err != nil {
				t.Fatal(err)
			}
			if ends {
				r.Close()
			}
			a.mapPorts()
			if reported() != 0 {
				t.Error("the problem is still there")
			}
			if mapped := o.ports != nil && o.ports[0].Address == taken.Addr().String(); mapped == ends {
				t.Errorf("mapped are %v", o.ports)
			}
		})
	}
}
