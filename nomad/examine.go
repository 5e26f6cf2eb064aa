package nomad

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/health"
)

// Examine inspects a Nomad cluster as a server with this configuration would use it, and reports
// what is missing. It changes nothing there. The error is for an invalid configuration.
func Examine(ctx context.Context, config Config) ([]health.Finding, error) {
	config.Connection.Patience = time.Second // a person waits for the result
	c, err := New(ctx, config)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	x := examination{Cluster: c}
	for _, step := range []func(context.Context){x.leader, x.policy, x.template, x.workspace, x.oversubscription, x.connections} {
		if step(ctx); x.unreachable {
			break
		}
	}
	return x.found, nil
}

// An examination is one Examine in progress. Its Cluster never runs, so it owns no prefix.
type examination struct {
	*Cluster
	found       []health.Finding
	unreachable bool // the remaining steps are skipped
}

func (x *examination) add(f health.Finding) { x.found = append(x.found, f) }

// leader reports whether Nomad answers and has a leader. If not, Examine skips the later steps.
func (x *examination) leader(ctx context.Context) {
	address := x.nomad.API().Address()
	leader, err := x.nomad.Leader(ctx)
	switch {
	case err != nil:
		x.add(health.Failure("nomad", "check that Nomad runs there, and the settings --nomad-address, --nomad-ca-cert and so on", "%s: %v", address, err))
	case leader == "":
		x.add(health.Failure("nomad", "check the logs of Nomad's servers", "%s answers, but has no leader", address))
	default:
		x.add(health.Fine("nomad", "%s answers; its leader is %s", address, leader))
	}
	x.unreachable = leader == ""
}

const policyAdvice = "give the token the policy of docs/guides/nomad.md"

func (x *examination) policy(ctx context.Context) {
	if err := x.reader.Check(ctx); err != nil {
		x.add(health.Failure("policy", policyAdvice, "%v", err))
		return
	}
	x.add(health.Fine("policy", "jobs, allocations, evaluations and variables can be listed"))
}

func (x *examination) template(ctx context.Context) {
	driver, err := x.environments.Check(ctx)
	if err != nil {
		x.add(health.Failure("template", "check --nomad-template and the other settings of jobs", "%v", err))
		return
	}
	x.add(health.Fine("template", "Nomad accepts the job of runners"))
	if err := x.nodes.Refresh(ctx); err != nil {
		x.add(health.Failure("policy", policyAdvice, "%v", err))
		return
	}
	taking, all := x.nodes.Taking(driver)
	if taking == 0 {
		x.add(health.Failure("nodes", "check `nomad node status -verbose`, and that nodes have the driver named by --nomad-driver",
			"none of %d nodes is ready and eligible with a healthy driver %s", all, driver))
		return
	}
	x.add(health.Fine("nodes", "%d of %d are ready and have a healthy driver %s", taking, all, driver))
	// Docker 20.10 also reports no address of its bridge if it created the bridge when it started.
	if bare := x.nodes.Reporting(job.Docker, "bridge_ip", ""); driver == job.Docker && bare > 0 && x.config.Jobs.NetworkMode == "" {
		x.add(health.Warning("network", "set a network with --nomad-network-mode, or check `docker network inspect bridge` on the nodes, whose daemons may run with --bridge=none; "+
			"if no environment has network access, ignore this",
			"on %d of %d nodes Nomad sees no address of Docker's bridge: without a bridge, runners with network access have no network", bare, taking))
	}
	x.room(driver)
	if driver == job.RawExec {
		x.add(health.Warning("driver", "use docker, podman or exec for programs that nobody has read", "raw_exec is unsafe: programs see the node's files and are on its network"))
	}
}

const fewRunners = 8

// room reports how many runners fit. Nomad places what a runner may use, not what it uses.
func (x *examination) room(driver job.Driver) {
	const name = "room"
	size := runtime.DefaultResources()
	reserved := max(int64(float64(size.MemoryMiB)*x.config.Jobs.MemoryReserve), 1)
	fit := x.nodes.Room(driver, int64(size.CPUMHz), reserved)
	told := fmt.Sprintf("%d runners of the default size fit on all nodes: %d MHz and %d MiB are reserved for each", fit, size.CPUMHz, reserved)
	if fit < fewRunners {
		x.add(health.Warning(name, "give environments less, for example `rockpool env put --cpu 200`", "%s", told))
		return
	}
	x.add(health.Fine(name, "%s", told))
}

func (x *examination) workspace(context.Context) {
	jobs := x.config.Jobs
	if jobs.Driver != job.Docker || len(jobs.Template) > 0 {
		return
	}
	const name, setting = "workspace", `volumes { enabled = true } in the configuration of the clients' plugin docker`
	taking, _ := x.nodes.Taking(job.Docker)
	allowing := x.nodes.Reporting(job.Docker, "volumes.enabled", "true")
	switch {
	case jobs.Workspace == job.WorkspaceVolume && allowing < taking:
		x.add(health.Failure(name, "set "+setting+", or --nomad-workspace tmpfs", "%d of %d nodes don't allow volumes, which --nomad-workspace volume needs", taking-allowing, taking))
	case jobs.Workspace == job.WorkspaceVolume:
		x.add(health.Fine(name, "programs created in /workspace and /tmp can be executed"))
	case allowing == taking && taking > 0:
		x.add(health.Warning(name, "set --nomad-workspace volume, which all nodes allow", "programs created in /workspace and /tmp can't be executed by their own name"))
	default:
		x.add(health.Warning(name, "where that matters set "+setting+", and --nomad-workspace volume (docs/guides/nomad.md has the price)",
			"programs created in /workspace and /tmp can't be executed by their own name"))
	}
}

// oversubscription matters only if the memory reserve is below 1.
func (x *examination) oversubscription(ctx context.Context) {
	reserve := x.config.Jobs.MemoryReserve
	if reserve >= 1 {
		return
	}
	const name, advice = "memory", "run `nomad operator scheduler set-config -memory-oversubscription true`, or set --nomad-memory-reserve 1"
	answer, _, err := x.nomad.API().Operator().SchedulerGetConfiguration(connection.Query(ctx))
	switch {
	case err != nil:
		x.add(health.Warning(name, advice, "--nomad-memory-reserve is %g, and this token can't read whether Nomad allows oversubscription", reserve))
	case !answer.SchedulerConfig.MemoryOversubscriptionEnabled:
		x.add(health.Failure(name, advice, "--nomad-memory-reserve is %g, and Nomad doesn't allow oversubscription: runners get only that share of their memory", reserve))
	default:
		x.add(health.Fine(name, "oversubscription is allowed"))
	}
}

const usualConnections = 100

func (x *examination) connections(ctx context.Context) {
	const name = "connections"
	const raise = "raise http_max_conns_per_client in the limits of Nomad's agents above the number of runners, and --nomad-bridges to that number"
	wanted := x.config.Bridges + x.config.Connection.Calls
	if x.config.Jobs.Agent.Stream {
		wanted += connection.DeliveriesAtOnce
	}
	limit, known := x.limit(ctx)
	switch {
	case !known:
		x.add(health.Warning(name, `add agent { policy = "read" } to the token's policy (docs/guides/nomad.md), and run this again; or `+raise,
			"this server needs %d, and this token can't read how many Nomad accepts from one address: the default of http_max_conns_per_client is %d", wanted, usualConnections))
	case limit > 0 && wanted > limit:
		x.add(health.Failure(name, "set --nomad-bridges lower, or "+raise, "Nomad accepts %d from one address, but this server needs %d: --nomad-bridges plus --nomad-calls", limit, wanted))
	case limit > 0:
		x.add(health.Fine(name, "this server needs %d, and Nomad accepts %d from one address; with more than %d runners, idle ones are connected when they are claimed", wanted, limit, x.config.Bridges))
	default:
		x.add(health.Fine(name, "this server needs %d, and Nomad accepts any number", wanted))
	}
}

// limit returns http_max_conns_per_client, if the token may read the agent's configuration.
func (x *examination) limit(ctx context.Context) (limit int, known bool) {
	var self api.AgentSelf
	if _, err := x.nomad.API().Raw().Query("/v1/agent/self", &self, connection.Query(ctx)); err != nil { // Self takes no context
		return 0, false
	}
	limits, _ := self.Config["Limits"].(map[string]any)
	for key, value := range limits {
		if strings.EqualFold(key, "HTTPMaxConnsPerClient") {
			n, ok := value.(float64)
			return int(n), ok
		}
	}
	return 0, false
}

// Check checks whether runners can be started: Nomad answers, the token has the permissions, a node
// can run the template's driver, and Nomad accepts the template. The error lists everything that is
// missing, one item per line, with what to do. If Nomad doesn't answer, the error is only
// CLUSTER_UNAVAILABLE, and waiting may help. Check doesn't need Run.
func (c *Cluster) Check(ctx context.Context) error {
	if _, err := c.nomad.Leader(ctx); err != nil {
		return err
	}
	driver, err := c.environments.Check(ctx)
	missing := []error{err}
	if driver != "" {
		missing = append(missing, c.checkNodes(ctx, driver))
	}
	// The permissions for registering and alloc exec show only when a runner starts.
	missing = append(missing, c.reader.Check(ctx))
	if c.config.Jobs.Driver == job.RawExec && len(c.config.Jobs.Template) == 0 {
		c.config.Logger.Warn("the driver raw_exec is unsafe: it doesn't isolate runners from each other or from the machine")
	}
	return errors.Join(missing...)
}

func (c *Cluster) checkNodes(ctx context.Context, driver job.Driver) error {
	c.nodes.Outdate()
	if err := c.nodes.Refresh(ctx); err != nil {
		return err
	}
	taking, all := c.nodes.Taking(driver)
	if taking > 0 {
		return nil
	}
	nodes := "nodes"
	if all == 1 {
		nodes = "node"
	}
	return fmt.Errorf("none of Nomad's %d %s is ready and eligible with a healthy driver %s: enable it in the configuration of Nomad's clients, or choose another driver", all, nodes, driver)
}
