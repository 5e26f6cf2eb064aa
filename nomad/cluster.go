package nomad

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/hints"
	"github.com/rockpool/rockpool/runtime/past"
	"github.com/rockpool/rockpool/runtime/problems"
	"github.com/rockpool/rockpool/runtime/turns"
)

// Cluster is a Nomad cluster as a runtime.Cluster. All its methods but Status and
// Watch wait until Run owns the namespace and prefix, and has looked once.
type Cluster struct {
	config    Config
	log       *zap.Logger
	names     names
	nomad     *connections
	calls     chan struct{} // a token for each call under way
	execs     chan struct{} // likewise for each exec in a runner without an agent
	gate      *turns.Gate   // of registrations
	pace      pace          // of runners' starts
	changes   hints.Watchers
	lists     rounds
	schedules rounds
	ui        ui
	bridges   *bridges
	looking   chan struct{} // capacity 1: Run is to look
	synced    chan struct{} // closed when this server owns what is Nomad's, and has looked once
	envTurn   turns.Slots   // of who writes an environment
	problems  *problems.List

	life    context.Context // of the goroutines that no caller waits for
	end     context.CancelCauseFunc
	workers sync.WaitGroup

	mu        sync.Mutex // guards all below; never held across I/O
	base      *api.Job   // that environments are rendered onto; nil: not read yet
	templates map[runtime.EnvironmentID]template
	entries   map[runtime.RunnerID]*entry
	removed   map[runtime.RunnerID]int // the change at which a runner was forgotten
	past      past.Runners
	schedule  *schedule // nil: not listed yet; never changed
	change    int       // counts changes of ours, which a list that began before doesn't know
	highest   uint64    // index of the latest job that was registered: an older list isn't believed
	nodes     map[string]*api.NodeListStub
	nodesOld  bool
	nodesAt   time.Time
	ended     bool
}

var _ runtime.Cluster = (*Cluster)(nil)

// New returns a cluster for a configuration, which it checks. It asks Nomad for
// nothing yet: Run does.
func New(_ context.Context, config Config) (*Cluster, error) {
	config, err := config.complete()
	if err != nil {
		return nil, err
	}
	if len(config.Template) == 0 {
		if _, err := config.builtIn(); err != nil {
			return nil, err
		}
	}
	k, err := config.connect()
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		config:    config,
		log:       config.Logger,
		names:     names{config.Prefix},
		nomad:     k,
		ui:        newUI(config.UIURL, k.settings),
		execs:     make(chan struct{}, config.Bridges),
		calls:     make(chan struct{}, config.Calls),
		gate:      turns.NewGate(config.Parallel),
		looking:   make(chan struct{}, 1),
		synced:    make(chan struct{}),
		envTurn:   make(turns.Slots, 1),
		templates: map[runtime.EnvironmentID]template{},
		entries:   map[runtime.RunnerID]*entry{},
		removed:   map[runtime.RunnerID]int{},
		nodesOld:  true,
		problems: problems.New(config.Logger, runtime.Problem{
			Subject: nomadSubject, Message: "this server is starting, and doesn't know yet what is there", Since: time.Now(),
		}),
	}
	c.life, c.end = context.WithCancelCause(context.Background())
	budget := config.Bridges
	if config.Agent.None {
		budget = 1 << 30 // what runs is bounded, by execs; a runner in which nothing runs costs nothing
	}
	c.bridges = newBridges(budget, c.openBridge)
	return c, nil
}

// Close gives back what New took, for who doesn't call Run. Runners stay.
func (c *Cluster) Close() {
	c.end(errStopping())
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.workers.Wait()
	c.bridges.close()
	c.nomad.close()
}

func errStopping() error {
	return runtime.Errorf(runtime.CodeClusterUnavailable, "the server is stopping")
}

// spawn runs work in a goroutine that Close waits for, unless it was called
// already.
func (c *Cluster) spawn(work func(ctx context.Context)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.workers.Go(func() { work(c.life) })
	return true
}

// ready waits until the cluster can be used.
func (c *Cluster) ready(ctx context.Context) error {
	if c.life.Err() != nil { // also where it was ready
		return context.Cause(c.life)
	}
	select {
	case <-c.synced:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.life.Done():
		return context.Cause(c.life)
	}
}

// Run owns what is Nomad's, and makes runners, until ctx ends, and returns its
// cause; or until it finds that another server owns it. Runners stay, unless
// Config.Remove has them end when ctx does: the error says then if some are left. Where another server owns it first,
// Run waits for its end. The Cluster can't be used afterwards.
func (c *Cluster) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer c.Close()
	lost, release, err := c.own(ctx)
	if err != nil {
		return err
	}
	defer release()
	stop := context.AfterFunc(lost, func() {
		if err := context.Cause(lost); errors.Is(err, errLost) {
			c.end(err) // now: another server may change what this one believes to know
		}
		cancel(context.Cause(lost))
	})
	defer stop()
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { c.follow(ctx) })
	err = c.keepLooking(ctx)
	if c.config.Remove && lost.Err() == nil {
		if left := c.removeAll(lost); left != nil {
			return left
		}
	}
	return err
}

// keepLooking looks at the truth whenever something may have changed, and at an
// interval, and has runners warmed that can be.
func (c *Cluster) keepLooking(ctx context.Context) error {
	tick := time.NewTicker(c.config.Relist)
	defer tick.Stop()
	var p pauses
	for {
		err := c.look(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			if err := p.wait(ctx); err != nil {
				return err
			}
			continue
		}
		p = pauses{}
		if c.first() {
			c.changes.Send("")
		}
		select {
		case <-c.looking:
		case <-tick.C:
			c.mu.Lock()
			c.nodesOld = true
			c.mu.Unlock()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// first reports whether this was the first look, and lets everybody in.
func (c *Cluster) first() bool {
	select {
	case <-c.synced:
		return false
	default:
		close(c.synced)
		return true
	}
}

// lookSoon has Run look.
func (c *Cluster) lookSoon() {
	select {
	case c.looking <- struct{}{}:
	default:
	}
}

// Status implements runtime.Cluster. It answers at once while another server
// owns what is Nomad's, or Nomad doesn't answer.
func (c *Cluster) Status(ctx context.Context) (runtime.ClusterStatus, error) {
	status := runtime.ClusterStatus{Kind: "nomad"}
	if c.ready(expired(ctx)) == nil {
		if err := c.refreshNodes(ctx); err != nil && ctx.Err() != nil {
			return status, context.Cause(ctx)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, node := range c.nodes {
		addCapacity(&status.Capacity, node)
	}
	for _, e := range c.entries {
		if e.runner.State != runtime.RunnerGone {
			status.Capacity.Take(e.runner.Environment.Resources)
		}
	}
	status.Problems = c.problems.All()
	return status, nil
}

// expired is a context that has ended, for a look without a wait.
func expired(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(errors.New("not now"))
	return ctx
}

// addCapacity adds what a node has for runners.
func addCapacity(sum *runtime.Capacity, node *api.NodeListStub) {
	if node.Status != api.NodeStatusReady || node.SchedulingEligibility != api.NodeSchedulingEligible || node.NodeResources == nil {
		return
	}
	mhz, mib := node.NodeResources.Cpu.CpuShares, node.NodeResources.Memory.MemoryMB
	if reserved := node.ReservedResources; reserved != nil {
		mhz -= int64(reserved.Cpu.CpuShares)
		mib -= int64(reserved.Memory.MemoryMB)
	}
	sum.CPUMHz += int(mhz)
	sum.MemoryMiB += mib
}

// nomadSubject is what a problem with all of Nomad is about.
const nomadSubject = "nomad"

func gone(id runtime.RunnerID) error {
	return runtime.Errorf(runtime.CodeRunnerGone, "runner %s isn't there", id)
}

// runnerSubject is what a problem of a runner is about.
func runnerSubject(id runtime.RunnerID) string { return fmt.Sprintf("runner %s", id) }
