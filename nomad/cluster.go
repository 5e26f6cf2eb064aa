package nomad

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/nomad/listing"
	"github.com/rockpool/rockpool/nomad/state"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/fairqueue"
	"github.com/rockpool/rockpool/runtime/health"
	"github.com/rockpool/rockpool/runtime/syncs"
)

// Cluster is a Nomad cluster as a runtime.Cluster. Its methods are safe for concurrent use. All
// except Status and Watch wait until Run owns the prefix and has read the lists once.
type Cluster struct {
	config Config
	group  *connection.Group // goroutines and calls that end with the cluster

	nomad        *connection.Client
	environments *state.Environments
	records      state.Records
	reader       listing.Reader
	nodes        *listing.Nodes
	bridges      *bridgeSet
	delivery     *connection.Delivery

	lock *state.Lock // of the prefix

	gate      *fairqueue.Limiter // orders and limits registrations
	pace      pace               // when to try starting runners
	runners   runners
	refresher refresher
	schedule  schedule
	changes   syncs.Watchers[runtime.EnvironmentID] // notified about runners
	others    syncs.Watchers[runtime.EnvironmentID] // notified about environments that other programs changed
	problems  *health.Problems
	counts    counts
}

var _ runtime.Cluster = (*Cluster)(nil)

// New checks a configuration and returns a cluster for it. It doesn't call Nomad; Run does.
func New(_ context.Context, config Config) (*Cluster, error) {
	config.Parallel = cmp.Or(config.Parallel, 8)
	config.Relist = cmp.Or(config.Relist, 30*time.Second)
	if config.Logger == nil {
		config.Logger = zap.NewNop()
	}
	config.Jobs.Pins = config.Resolve != nil
	if config.openBridge == nil {
		config.openBridge = execBridge
	}
	if err := config.Jobs.Check(); err != nil {
		return nil, err
	}
	ends := &connection.Group{}
	nomad, err := connection.New(config.Connection, ends)
	if err != nil {
		return nil, err
	}
	names := config.Jobs.Names()
	known := health.NewProblems(config.Logger, runtime.Problem{
		Subject: nomadSubject, Message: "this server is starting, and hasn't read Nomad's jobs yet", Since: time.Now(),
	})
	c := &Cluster{
		config: config, group: ends, nomad: nomad, problems: known,
		environments: state.NewEnvironments(nomad, config.Jobs, known),
		records:      state.Records{Nomad: nomad, Names: names},
		reader:       listing.Reader{Nomad: nomad, Names: names},
		nodes:        listing.NewNodes(nomad),
		delivery:     connection.NewDelivery(nomad, config.Jobs.Agent.Arch),
		gate:         fairqueue.NewLimiter(config.Parallel),
		lock: &state.Lock{
			Nomad: nomad, Prefix: config.Jobs.Prefix, TTL: config.LockTTL, Dir: config.Dir, Logger: config.Logger, Problems: known,
			Peer: state.Peer{Address: config.Peer, Secret: rand.Text()}, AwaitEnd: config.AwaitEnd,
		},
		counts:  counts{health.NewTaskCounts(health.PhaseTurn, health.PhaseRegister, health.PhasePlace, health.PhaseStart, health.PhasePoststart, health.PhaseSave)},
		runners: runners{entries: map[runtime.RunnerID]*entry{}, removed: map[runtime.RunnerID]int{}},
	}
	c.refresher = refresher{Rounds: listing.NewRounds(ends, c.refresh), due: syncs.NewHint(), synced: make(chan struct{})}
	c.schedule.rounds = listing.NewRounds(ends, c.listSchedule)
	c.bridges = newBridgeSet(config.Bridges, c.openBridge, ends)
	return c, nil
}

// Close frees the resources of a cluster for which Run isn't called. Runners continue.
func (c *Cluster) Close() {
	c.group.End(runtime.Errorf(runtime.CodeClusterUnavailable, "the server is stopping"))
	c.group.Wait()
	c.nomad.Close()
}

func (c *Cluster) names() job.Names { return c.config.Jobs.Names() }

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
	held, err := c.lock.Acquire(ctx)
	if err != nil {
		return err
	}
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
		if errors.Is(err, state.ErrLost) {
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

// LockID returns the id of the lock, if this server holds it. Servers that watch this one receive it.
func (c *Cluster) LockID() string { return c.lock.ID() }

// Secret returns the secret that other servers must present when they pass connections to this one.
func (c *Cluster) Secret() string { return c.lock.Peer.Secret }

// Leader returns where the server that owns the prefix accepts connections of other servers, and
// the secret that they must present. Both are empty if this server owns the prefix, no server does,
// or the owner is unknown.
func (c *Cluster) Leader() (address, secret string) {
	owner := c.lock.Owner()
	return owner.Address, owner.Secret
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

const nomadSubject = "nomad"

func runnerSubject(id runtime.RunnerID) string { return fmt.Sprintf("runner %s", id) }

func gone(id runtime.RunnerID) error {
	return runtime.Errorf(runtime.CodeRunnerGone, "runner %s no longer exists", id)
}

// PinImage implements engine.Images. With the registry's digest all nodes run the same bytes.
func (c *Cluster) PinImage(ctx context.Context, reference string) (runtime.ImagePin, error) {
	if c.config.Resolve == nil || reference == runtime.DefaultImage {
		return runtime.ImagePin{}, nil
	}
	pin, err := c.config.Resolve(ctx, reference)
	if runtime.CodeOf(err) == runtime.CodeClusterUnavailable {
		err = runtime.Wrap(runtime.CodeClusterUnavailable, err, "the image %s can't be looked up now (%v): where only nodes have images, set --nomad-node-images", reference, err)
	}
	return pin, err
}

// ImageStatus implements engine.Images. A node pulls a pinned image when it first needs it.
func (c *Cluster) ImageStatus(pin runtime.ImagePin) runtime.ImageStatus {
	if pin.Digest == "" {
		return runtime.ImageStatus{}
	}
	return runtime.ImageStatus{Digest: pin.Digest, State: runtime.ImageReady}
}

// Config says how to reach Nomad and how to start runners there. Package config has checked the
// bounds of numbers.
type Config struct {
	Connection connection.Config
	Jobs       job.Config
	Logger     *zap.Logger
	// Resolve returns the digest that an image's reference has now, as environments.Images.PinImage does.
	// Without it images aren't pinned.
	Resolve func(ctx context.Context, reference string) (runtime.ImagePin, error)
	Dir     string // keeps the lock's id, so that a restarted server continues immediately; may be empty
	Remove  bool   // the end of Run removes all runners
	Peer    string // address where this server accepts connections that other servers pass on, if it does
	// AwaitEnd waits until the process of the server at an address has ended, and returns the LockID
	// that it had reported. Without it the end of other servers isn't watched.
	AwaitEnd func(ctx context.Context, address, secret string) (lockID string, err error)

	Parallel int           // concurrent registrations; 0 means 8
	Bridges  int           // connections for bridges
	Relist   time.Duration // interval of refreshes without a hint; 0 means 30 s
	LockTTL  time.Duration // time after which a standby takes over from a dead server

	// openBridge is execBridge, except in tests with a fake Nomad.
	openBridge func(ctx context.Context, nomad *connection.Client, node, allocation string, access job.AgentAccess) (bridgeSession, error)
}
