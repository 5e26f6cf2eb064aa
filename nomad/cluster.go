package nomad

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/nomad/bridges"
	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/delivery"
	"github.com/rockpool/rockpool/nomad/environment"
	"github.com/rockpool/rockpool/nomad/group"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/nomad/listing"
	"github.com/rockpool/rockpool/nomad/lock"
	"github.com/rockpool/rockpool/nomad/record"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/hints"
	"github.com/rockpool/rockpool/runtime/problems"
	"github.com/rockpool/rockpool/runtime/turns"
)

// Cluster is a Nomad cluster as a runtime.Cluster. All its methods but Status and
// Watch wait until Run owns the namespace and prefix, and has read the truth once.
type Cluster struct {
	config Config
	group  *group.Group // of what ends with the cluster

	nomad        *connection.Client
	environments *environment.Store
	records      record.Store
	reader       listing.Reader
	nodes        *listing.Nodes
	bridges      *bridges.Set
	delivery     *delivery.Delivery

	peer   lock.Peer                 // of this server
	leader atomic.Pointer[lock.Peer] // of the one that owns the lock; nil: unknown
	lockID atomic.Pointer[string]    // of the lock that this server holds; nil: none

	gate      *turns.Gate // of registrations
	pace      pace        // of runners' starts
	runners   runners
	refresher refresher
	schedule  schedule
	networks  networks
	changes   hints.Watchers // of runners
	others    hints.Watchers // of environments that others changed
	problems  *problems.List
	counts    counts
}

var _ runtime.Cluster = (*Cluster)(nil)

// New returns a cluster for a configuration, which it checks. It doesn't call
// Nomad yet: Run does.
func New(_ context.Context, config Config) (*Cluster, error) {
	config, err := config.complete()
	if err != nil {
		return nil, err
	}
	ends := &group.Group{}
	nomad, err := connection.New(config.Connection, ends)
	if err != nil {
		return nil, err
	}
	config.Jobs.Pins = config.Resolve != nil
	names := config.Jobs.Names()
	known := problems.New(config.Logger, runtime.Problem{
		Subject: nomadSubject, Message: "this server is starting, and doesn't know yet what is there", Since: time.Now(),
	})
	c := &Cluster{
		config: config, group: ends, nomad: nomad, problems: known,
		environments: environment.NewStore(nomad, config.Jobs, known),
		records:      record.NewStore(nomad, names),
		reader:       listing.NewReader(nomad, names),
		nodes:        listing.NewNodes(nomad),
		delivery:     delivery.New(nomad, config.Jobs.Agent.Arch),
		gate:         turns.NewGate(config.Parallel),
		peer:         lock.Peer{Address: config.Peer, Secret: rand.Text()},
		counts:       newCounts(),
		runners:      runners{entries: map[runtime.RunnerID]*entry{}, removed: map[runtime.RunnerID]int{}},
		networks:     networks{found: map[runtime.RunnerID]network{}},
	}
	c.refresher = refresher{Rounds: listing.NewRounds(ends, c.refresh), due: make(chan struct{}, 1), synced: make(chan struct{})}
	c.schedule.rounds = listing.NewRounds(ends, c.listSchedule)
	if c.config.open == nil {
		c.config.open = bridges.NewOpener(nomad).Open
	}
	c.bridges = bridges.NewSet(config.Bridges, c.openBridge, ends)
	return c, nil
}

// Close gives back what New took, where Run isn't called. Runners stay.
func (c *Cluster) Close() {
	c.group.End(runtime.Errorf(runtime.CodeClusterUnavailable, "the server is stopping"))
	c.group.Wait()
	c.nomad.Close()
}

func (c *Cluster) names() job.Names { return c.config.Jobs.Names() }

// ready waits until the cluster can be used.
func (c *Cluster) ready(ctx context.Context) error {
	if c.serves() {
		return nil
	}
	ctx, release := c.group.Bind(ctx)
	defer release()
	select {
	case <-c.refresher.synced:
		return c.group.Cause()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// serves reports whether the cluster can be used now.
func (c *Cluster) serves() bool {
	select {
	case <-c.refresher.synced:
		return c.group.Cause() == nil
	default:
		return false
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
	held, err := c.lock().Acquire(ctx)
	if err != nil {
		return err
	}
	c.lockID.Store(new(held.ID()))
	owning, lose := context.WithCancelCause(context.WithoutCancel(ctx))
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var parts sync.WaitGroup
	defer func() {
		stop()
		parts.Wait()
		held.Release()
	}()
	parts.Go(func() {
		err := held.Renew(renewing)
		if errors.Is(err, lock.ErrLost) {
			c.group.End(err) // now: another server may change what this one believes to know
		}
		lose(err)
		cancel(err)
	})
	parts.Go(func() { c.follow(ctx) })
	err = c.keepFresh(ctx)
	if c.config.Remove && owning.Err() == nil {
		if left := c.removeAll(owning); left != nil {
			return left
		}
	}
	return err
}

func (c *Cluster) lock() lock.Lock {
	l := lock.Lock{
		Peer: c.peer, Seen: func(p lock.Peer) { c.leader.Store(&p) },
		Nomad: c.nomad, Prefix: c.config.Jobs.Prefix, Path: c.names().Lock(), TTL: c.config.LockTTL,
		Dir: c.config.Dir, Logger: c.config.Logger, Problems: c.problems, Counts: &c.counts.lock,
	}
	if vigil := c.config.Vigil; vigil != nil {
		l.Vigil = func(ctx context.Context, of lock.Peer) (string, error) { return vigil(ctx, of.Address, of.Secret) }
	}
	return l
}

// LockID returns the id of the lock that this server holds; "": it holds none. Servers that watch this one get it.
func (c *Cluster) LockID() string {
	if id := c.lockID.Load(); id != nil {
		return *id
	}
	return ""
}

// Secret is what others must show that pass connections on to this server.
func (c *Cluster) Secret() string { return c.peer.Secret }

// Leader returns where the server that owns what is Nomad's takes connections of others, and what it wants to be
// shown; "": this one owns it, nobody does, or that isn't known.
func (c *Cluster) Leader() (address, secret string) {
	if p := c.leader.Load(); p != nil {
		return p.Address, p.Secret
	}
	return "", ""
}

// Status implements runtime.Cluster. It answers at once while another server
// owns what is Nomad's, or Nomad doesn't answer.
func (c *Cluster) Status(ctx context.Context) (runtime.ClusterStatus, error) {
	status := runtime.ClusterStatus{Kind: "nomad"}
	if c.serves() {
		if err := c.nodes.Refresh(ctx); err != nil && ctx.Err() != nil {
			return status, context.Cause(ctx)
		}
	}
	status.Capacity = c.nodes.Capacity()
	status.CoreMHz = c.nodes.CoreMHz()
	status.Problems = c.problems.All()
	c.runners.mu.Lock()
	defer c.runners.mu.Unlock()
	for _, e := range c.runners.entries {
		if e.runner.State != runtime.RunnerGone {
			status.Capacity.Take(e.runner.Environment.Resources)
		}
	}
	return status, nil
}

// PutEnvironment returns INVALID_INPUT, too, for an environment that the
// template's driver can't run, and for a template that Nomad refuses.
func (c *Cluster) PutEnvironment(ctx context.Context, env runtime.Environment) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	return c.environments.Put(ctx, env)
}

// DeleteEnvironment implements runtime.Cluster.
func (c *Cluster) DeleteEnvironment(ctx context.Context, id runtime.EnvironmentID) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	return c.environments.Delete(ctx, id)
}

// Environments implements runtime.Cluster. One whose job can't be read is what was known of
// it, or left out, and reported by Status.
func (c *Cluster) Environments(ctx context.Context) ([]runtime.Environment, error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	return c.environments.All(ctx)
}

// Watch gives a first hint for all as soon as it watches, and none for a Mark:
// its caller knows.
func (c *Cluster) Watch(ctx context.Context, hint func(runtime.EnvironmentID)) error {
	return c.changes.Watch(ctx, hint)
}

// nomadSubject is what a problem with all of Nomad is about.
const nomadSubject = "nomad"

// runnerSubject is what a problem of a runner is about.
func runnerSubject(id runtime.RunnerID) string { return fmt.Sprintf("runner %s", id) }

func gone(id runtime.RunnerID) error {
	return runtime.Errorf(runtime.CodeRunnerGone, "runner %s isn't there", id)
}
