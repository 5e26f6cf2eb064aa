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
	"github.com/rockpool/rockpool/runtime/fairqueue"
	"github.com/rockpool/rockpool/runtime/health"
	"github.com/rockpool/rockpool/runtime/syncs"
)

// Cluster is a Nomad cluster as a runtime.Cluster. Its methods are safe for concurrent use. All
// except Status and Watch wait until Run owns the prefix and has read the lists once.
type Cluster struct {
	config Config
	group  *group.Group // goroutines and calls that end with the cluster

	nomad        *connection.Client
	environments *environment.Store
	records      record.Store
	reader       listing.Reader
	nodes        *listing.Nodes
	bridges      *bridges.Set
	delivery     *delivery.Delivery

	peer   lock.Peer                 // this server
	leader atomic.Pointer[lock.Peer] // the owner of the lock; nil: unknown
	lockID atomic.Pointer[string]    // of the lock that this server holds; nil: it holds none

	gate      *fairqueue.Limiter // orders and limits registrations
	pace      pace               // when to try starting runners
	runners   runners
	refresher refresher
	schedule  schedule
	networks  networks
	changes   syncs.Watchers[runtime.EnvironmentID] // notified about runners
	others    syncs.Watchers[runtime.EnvironmentID] // notified about environments that other programs changed
	problems  *health.Problems
	counts    counts
}

var _ runtime.Cluster = (*Cluster)(nil)

// New checks a configuration and returns a cluster for it. It doesn't call Nomad; Run does.
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
	known := health.NewProblems(config.Logger, runtime.Problem{
		Subject: nomadSubject, Message: "this server is starting, and hasn't read Nomad's jobs yet", Since: time.Now(),
	})
	c := &Cluster{
		config: config, group: ends, nomad: nomad, problems: known,
		environments: environment.NewStore(nomad, config.Jobs, known),
		records:      record.NewStore(nomad, names),
		reader:       listing.NewReader(nomad, names),
		nodes:        listing.NewNodes(nomad),
		delivery:     delivery.New(nomad, config.Jobs.Agent.Arch),
		gate:         fairqueue.NewLimiter(config.Parallel),
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

// Close frees the resources of a cluster for which Run isn't called. Runners continue.
func (c *Cluster) Close() {
	c.group.End(runtime.Errorf(runtime.CodeClusterUnavailable, "the server is stopping"))
	c.group.Wait()
	c.nomad.Close()
}

// names returns the names of the prefix's jobs and variables.
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

// Run acquires the ownership of the prefix, and manages runners until ctx ends or another server
// has taken over. It returns ctx's cause or that error. While another server owns the prefix, Run
// waits for that server's end. Runners continue after Run, unless Config.Remove is set. Then they
// end with ctx, and the error says if some are left. The Cluster can't be used afterwards.
func (c *Cluster) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer c.Close()
	held, err := c.lock().Acquire(ctx)
	if err != nil {
		return err
	}
	c.lockID.Store(new(held.ID()))
	// The ownership and its renewal must outlast ctx: with Config.Remove, runners are removed after
	// ctx has ended. owning ends when the lock is no longer renewed.
	owning, lose := context.WithCancelCause(context.WithoutCancel(ctx))
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var parts sync.WaitGroup
	defer func() {
		// The lock is released last. Until then no other server may use the prefix.
		stop()
		parts.Wait()
		held.Release()
	}()
	parts.Go(func() {
		err := held.Renew(renewing)
		if errors.Is(err, lock.ErrLost) {
			c.group.End(err) // immediately: another server may change what this one has read
		}
		lose(err)
		cancel(err)
	})
	parts.Go(func() { c.follow(ctx) })
	err = c.keepFresh(ctx)
	// Without the ownership another server may already use these runners.
	if c.config.Remove && owning.Err() == nil {
		if left := c.removeAll(owning); left != nil {
			return left
		}
	}
	return err
}

// lock returns the prefix's lock, with this server as the peer. It doesn't acquire it.
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

// LockID returns the id of the lock that this server holds; "" if it holds none. Servers that watch
// this one receive it.
func (c *Cluster) LockID() string {
	if id := c.lockID.Load(); id != nil {
		return *id
	}
	return ""
}

// Secret returns the secret that other servers must present when they pass connections to this one.
func (c *Cluster) Secret() string { return c.peer.Secret }

// Leader returns where the server that owns the prefix accepts connections of other servers, and
// the secret that they must present. Both are "" if this server owns the prefix, no server does, or
// the owner is unknown.
func (c *Cluster) Leader() (address, secret string) {
	if p := c.leader.Load(); p != nil {
		return p.Address, p.Secret
	}
	return "", ""
}

// Status implements runtime.Cluster. It doesn't wait for ownership of the prefix or for Nomad.
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
	// Runners that have ended no longer use their node's resources.
	c.runners.mu.Lock()
	defer c.runners.mu.Unlock()
	for _, e := range c.runners.entries {
		if e.runner.State != runtime.RunnerGone {
			status.Capacity.Take(e.runner.Environment.Resources)
		}
	}
	return status, nil
}

// PutEnvironment implements runtime.Cluster. It also returns INVALID_INPUT if the template's driver
// can't run the environment, or Nomad rejects the template.
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

// Environments implements runtime.Cluster. If an environment's job can't be read, Status reports
// that. The environment is then returned as it was known before, or left out.
func (c *Cluster) Environments(ctx context.Context) ([]runtime.Environment, error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	return c.environments.All(ctx)
}

// Watch implements runtime.Cluster. It first hints at all environments. It gives no hint for a
// Mark, whose caller knows about it.
func (c *Cluster) Watch(ctx context.Context, hint func(runtime.EnvironmentID)) error {
	return c.changes.Watch(ctx, hint)
}

// nomadSubject is the subject of problems that concern all of Nomad.
const nomadSubject = "nomad"

// runnerSubject is the subject of a problem of a runner.
func runnerSubject(id runtime.RunnerID) string { return fmt.Sprintf("runner %s", id) }

// gone returns the RUNNER_GONE error of a runner.
func gone(id runtime.RunnerID) error {
	return runtime.Errorf(runtime.CodeRunnerGone, "runner %s no longer exists", id)
}
