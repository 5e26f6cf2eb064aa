package nomad

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/nomad/bridges"
	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/runtime"
)

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

	// openBridge is bridges.Open, except in tests with a fake Nomad.
	openBridge func(ctx context.Context, nomad *connection.Client, node, allocation string, access job.AgentAccess) (bridges.Session, error)
}
