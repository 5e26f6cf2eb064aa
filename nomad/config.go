package nomad

import (
	"cmp"
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/nomad/bridges"
	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/runtime"
)

// Config says how to reach Nomad and how to start runners there. Unset fields have the default in
// their comment.
type Config struct {
	Connection connection.Config
	Jobs       job.Config
	Logger     *zap.Logger
	// Resolve returns the digest that an image's reference has now, as environments.Images.PinImage does;
	// nil: images aren't pinned.
	Resolve func(ctx context.Context, reference string) (runtime.ImagePin, error)
	Dir     string // keeps the lock's id, so that a restarted server continues immediately; "": it isn't kept
	Remove  bool   // the end of Run removes all runners
	Peer    string // address where this server accepts connections that other servers pass on; "": none
	// Vigil waits until the process of the server at an address has ended, and returns the LockID
	// that it had reported; nil: the end of other servers isn't watched.
	Vigil func(ctx context.Context, address, secret string) (lockID string, err error)

	Parallel int           // concurrent registrations: 8
	Bridges  int           // connections for bridges: 80
	Relist   time.Duration // interval of refreshes without a hint: 30 s
	LockTTL  time.Duration // time after which a standby takes over from a dead server: 10 s

	open func(context.Context, bridges.Target) (bridges.Session, error) // replaces alloc exec in tests with a fake Nomad
}

// complete returns c with its defaults, or INVALID_INPUT for the first invalid field.
func (c Config) complete() (Config, error) {
	c.Parallel = cmp.Or(c.Parallel, 8)
	c.Bridges = cmp.Or(c.Bridges, 80)
	c.Relist = cmp.Or(c.Relist, 30*time.Second)
	c.LockTTL = cmp.Or(c.LockTTL, 10*time.Second)
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	err := cmp.Or(
		runtime.Between("parallel", int64(c.Parallel), 1, 64, "registrations"),
		runtime.Between("bridges", int64(c.Bridges), 1, 100_000, "connections"),
		runtime.Between("relist", c.Relist.Milliseconds(), 100, 600_000, "milliseconds"),
		runtime.Between("lockTTL", int64(c.LockTTL/time.Second), 10, 3600, "seconds"), // Nomad's own minimum
	)
	if err != nil {
		return c, err
	}
	if c.Connection, err = c.Connection.Complete(); err != nil {
		return c, err
	}
	c.Jobs, err = c.Jobs.Complete()
	return c, err
}
