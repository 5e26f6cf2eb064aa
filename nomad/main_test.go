package nomad

import (
	"cmp"
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	goruntime "runtime"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap/zaptest"

	"github.com/rockpool/rockpool/agent/embedded"
	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/clustertest"
	"github.com/rockpool/rockpool/test/nomadtest"
	"github.com/rockpool/rockpool/test/wait"
)

// Slow: each of three drivers runs the conformance suite on a real Nomad, where a runner takes a third of a second.

// Nomads that the tests share, one for each driver: with a single one, each test would wait for the
// slowest driver to start.
var (
	raw       = nomadtest.Shared{Options: nomadtest.Options{ACL: true, TLS: true, Namespace: "pool"}}
	chroots   = nomadtest.Shared{Options: nomadtest.Options{Drivers: []string{"exec"}}}
	container = nomadtest.Shared{Options: nomadtest.Options{Drivers: []string{"docker"}}}
	agents    = newAgentServer()
)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, n := range []*nomadtest.Shared{&raw, &chroots, &container} {
		if err := n.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "end Nomad:", err)
			code = max(code, 1)
		}
	}
	agents.Close()
	os.Exit(code)
}

// An agentServer is where Nomad fetches the agent, as from a server.
type agentServer struct {
	*httptest.Server
	files *embedded.Files
	err   error
}

func newAgentServer() agentServer {
	files, err := embedded.NewFiles()
	return agentServer{httptest.NewServer(files), files, err}
}

func (s agentServer) agent(t *testing.T) job.Agent {
	t.Helper()
	if s.err != nil {
		t.Fatal(s.err)
	}
	sum := s.files.ArchiveSum(goruntime.GOARCH)
	return job.Agent{URL: s.URL + embedded.Prefix + sum, SHA256: sum, Arch: goruntime.GOARCH}
}

// rawEnvironment is an environment that the raw_exec driver can run.
func rawEnvironment() runtime.Environment {
	resources := runtime.DefaultResources()
	resources.CPUMHz, resources.MemoryMiB, resources.WorkspaceMiB = 100, 64, 16
	return runtime.Environment{
		Image: runtime.DefaultImage, Isolation: runtime.IsolationNone, Resources: resources, OutputLimit: runtime.DefaultOutputLimit,
	}
}

// defaults returns c with the defaults of package config.
func defaults(c Config) Config {
	c.Bridges = cmp.Or(c.Bridges, 80)
	c.LockTTL = cmp.Or(c.LockTTL, 10*time.Second)
	c.Connection.Calls = cmp.Or(c.Connection.Calls, 16)
	c.Jobs.Prefix = cmp.Or(c.Jobs.Prefix, "rockpool")
	c.Jobs.MemoryReserve = cmp.Or(c.Jobs.MemoryReserve, 1)
	c.Jobs.NoNetworkMode = cmp.Or(c.Jobs.NoNetworkMode, "none")
	c.Jobs.Workspace = cmp.Or(c.Jobs.Workspace, job.WorkspaceTmpfs)
	c.Jobs.Priority = cmp.Or(c.Jobs.Priority, 50)
	return c
}

// config returns a configuration for a Nomad of the tests, with its own prefix.
func config(t *testing.T, n *nomadtest.Nomad, driver job.Driver) Config {
	ca, cert, key := n.TLS()
	return defaults(Config{
		Connection: connection.Config{
			Address: n.Address(), Namespace: n.Namespace(), Token: n.Token(), CACert: ca, ClientCert: cert, ClientKey: key,
		},
		Jobs:    job.Config{Driver: driver, Prefix: "rockpool-" + uuid.NewString()[:8], Agent: agents.agent(t)},
		LockTTL: wait.Limit, // a busy machine may hold up its renewal
		Logger:  zaptest.NewLogger(t),
	})
}

// start runs a cluster until the test ends, and then removes everything that it has in Nomad.
func start(t *testing.T, config Config) *Cluster {
	t.Helper()
	c, err := New(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Run(ctx)
	}()
	t.Cleanup(func() {
		clean, cleaned := context.WithTimeout(context.Background(), wait.Limit)
		defer cleaned()
		if err := removeAll(clean, c); err != nil {
			t.Error(err)
		}
		cancel()
		<-done
	})
	return c
}

func removeAll(ctx context.Context, c *Cluster) error {
	environments, err := c.Environments(ctx)
	if err != nil {
		return err
	}
	for _, env := range environments {
		if err := c.DeleteEnvironment(ctx, env.ID); err != nil {
			return err
		}
	}
	runners, err := c.Runners(ctx, "")
	for _, r := range runners {
		if err := c.Remove(ctx, r.ID); err != nil {
			return err
		}
	}
	return err
}

// A way is how an agent gets into runners. Each passes the same suite.
var ways = map[string]func(*testing.T) job.Agent{
	"fetched":  agents.agent,
	"streamed": func(*testing.T) job.Agent { return job.Agent{Stream: true, Arch: goruntime.GOARCH} },
}

// conforms runs the conformance suite with a driver, with the agent fetched and streamed.
func conforms(t *testing.T, env runtime.Environment, settings func(t *testing.T) Config) {
	t.Parallel()
	for name, agent := range ways {
		t.Run(name, func(t *testing.T) {
			clustertest.Suite(t, env, func(t *testing.T) runtime.Cluster {
				c := settings(t)
				c.Jobs.Agent = agent(t)
				return start(t, c)
			})
		})
	}
}

func TestConformanceRawExec(t *testing.T) {
	n := raw.Nomad(t)
	conforms(t, rawEnvironment(), func(t *testing.T) Config { return config(t, n, job.RawExec) })
}

func TestConformanceExec(t *testing.T) {
	n := chroots.Nomad(t)
	env := rawEnvironment()
	env.Isolation = runtime.IsolationNamespaces
	conforms(t, env, func(t *testing.T) Config {
		c := config(t, n, job.Exec)
		c.Jobs.NoNetworkMode = "host" // Nomad 1.11.3 can't do "none"
		return c
	})
}

func TestConformanceDocker(t *testing.T) {
	n := container.Nomad(t)
	env := rawEnvironment()
	env.Image, env.Isolation = nomadtest.Image, runtime.IsolationNamespaces
	conforms(t, env, func(t *testing.T) Config { return config(t, n, job.Docker) })
}
