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

// Config says which Nomad is used, and how runners are made there. Fields that aren't set
// have the default that is named.
type Config struct {
	Connection connection.Config
	Jobs       job.Config
	Logger     *zap.Logger
	// Resolve says what an image's reference means now, as engine.Images.PinImage does; nil: nodes have images
	// by their names.
	Resolve func(ctx context.Context, reference string) (runtime.ImagePin, error)
	Dir     string // where the ownership lock's id is kept, so that a restarted server goes on at once; "": nowhere
	Remove  bool   // the end of Run ends all runners
	Peer    string // address where this server takes connections that others pass on; "": nowhere
	// Vigil waits until the process of a server has ended that takes connections at an address, and returns
	// what it told as its LockID; nil: nobody finds out.
	Vigil func(ctx context.Context, address, secret string) (lockID string, err error)

	Parallel int           // registrations at once: 8
	Bridges  int           // connections for bridges: 80
	Relist   time.Duration // between looks without a hint: 30 s
	LockTTL  time.Duration // after which a standby takes over from a server that is dead: 10 s

	open func(context.Context, bridges.Target) (bridges.Session, error) // of tests, whose Nomad isn't real
}

// complete returns c with its defaults, or INVALID_INPUT with the first field
// that can't be used.
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
		runtime.Between("lockTTL", int64(c.LockTTL/time.Second), 10, 3600, "seconds"), // Nomad takes no less
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
