package bed

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/bench/bare"
)

// A Nomad is one that already runs, with clients on this machine: they fetch the agent from servers
// on loopback.
type Nomad struct {
	*bare.Nomad
	Image     string // for runners of the driver docker; needs sh, echo, true, head and yes
	AgentPath string // path of the agent on nodes and in images; "" means they don't have it
	Database  string // of the servers; "" means SQLite

	drivers []string // see Inspect
	servers atomic.Int32
}

// Nomad's drivers.
const (
	rawExec = "raw_exec"
	chroot  = "exec"
	Docker  = "docker"
)

// NomadDrivers are the measured drivers, the cheapest first.
var NomadDrivers = []string{rawExec, chroot, Docker}

// Inspect returns the NomadDrivers that this Nomad has. Servers and tasks use them afterwards.
func (n *Nomad) Inspect(ctx context.Context) ([]string, error) {
	drivers, err := n.Drivers(ctx)
	if err != nil {
		return nil, err
	}
	for _, driver := range NomadDrivers {
		if slices.Contains(drivers, driver) {
			n.drivers = append(n.drivers, driver)
		}
	}
	if len(n.drivers) == 0 {
		return nil, fmt.Errorf("no node of this Nomad has one of the drivers %s", strings.Join(NomadDrivers, ", "))
	}
	return n.drivers, nil
}

// ServeNomad starts a server on Nomad with this many idle runners of a driver, and waits for them.
// "" is the cheapest driver. Closing the bed removes all that the server left in Nomad.
func (b *Bed) ServeNomad(ctx context.Context, driver string, runners int, more ...string) (*Server, error) {
	n := b.Nomad
	if driver == "" {
		driver = n.drivers[0]
	}
	dir, err := b.Directory()
	if err != nil {
		return nil, err
	}
	listen, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	prefix := fmt.Sprintf("%s-s%03d", n.Prefix(), n.servers.Add(1))
	b.OnClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		return n.End(ctx, prefix)
	})
	l := launch{
		program: b.Program, data: filepath.Join(dir, "data"), listen: listen, profiled: b.Profiles != "", Prefix: prefix,
		cluster: append([]string{
			"--cluster", "nomad", "--nomad-driver", driver, "--nomad-prefix", prefix, "--advertise-url", "http://" + listen,
			"--nomad-no-network-mode", "host", "--nomad-bridges", "1000", "--nomad-node-images",
		}, more...),
		env: client.PutEnvironmentInput{
			Resources: &client.ResourcesInput{WorkspaceMiB: new(16), MemoryMiB: new(64), CpuMHz: new(10)}, Isolation: new(runtime.IsolationCluster),
		},
	}
	if n.Database != "" {
		l.cluster = append(l.cluster, "--database", n.Database)
	}
	switch driver {
	case rawExec:
		l.env.Isolation = new(runtime.IsolationNone)
	case Docker:
		l.env.Image = &n.Image
	}
	s, err := startServer(ctx, l)
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

// Bare starts this many tasks without Rockpool, until the bed is closed.
func (b *Bed) Bare(ctx context.Context, driver string, count int) ([]bare.Task, error) {
	n := b.Nomad
	if driver == "" {
		driver = n.drivers[0]
	}
	tasks, end, err := n.Start(ctx, driver, count)
	b.OnClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return end(ctx)
	})
	return tasks, err
}
