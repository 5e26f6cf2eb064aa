package nomad

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

// A Finding is what Examine found out about one thing.
type Finding struct {
	Name    string
	Message string
	Advice  string // what to do; "": nothing
	Fails   bool   // runners can't be had without it
}

// Examine looks at a Nomad as a server with this configuration would use it,
// changes nothing there, and says what is missing. The error is of the
// configuration.
func Examine(ctx context.Context, config Config) ([]Finding, error) {
	config.Patience = time.Second // somebody waits
	c, err := New(ctx, config)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	x := examination{Cluster: c, client: c.nomad.calls, options: func() *api.QueryOptions { return (&api.QueryOptions{}).WithContext(ctx) }}
	x.leader(ctx)
	if x.failed {
		return x.found, nil
	}
	x.policy(ctx)
	x.template(ctx)
	x.oversubscription()
	x.connections()
	return x.found, nil
}

type examination struct {
	*Cluster
	client  *api.Client
	options func() *api.QueryOptions // each its own: some calls change them
	found   []Finding
	failed  bool
}

func (x *examination) fine(name, format string, args ...any) {
	x.found = append(x.found, Finding{Name: name, Message: fmt.Sprintf(format, args...)})
}

func (x *examination) warn(name, advice, format string, args ...any) {
	x.found = append(x.found, Finding{Name: name, Message: fmt.Sprintf(format, args...), Advice: advice})
}

func (x *examination) bad(name, advice, format string, args ...any) {
	x.failed = true
	x.found = append(x.found, Finding{Name: name, Message: fmt.Sprintf(format, args...), Advice: advice, Fails: true})
}

func (x *examination) leader(ctx context.Context) {
	address, leader := x.client.Address(), ""
	err := x.call(ctx, "ask for the leader", func(ctx context.Context) (err error) {
		leader, err = x.Cluster.leader(ctx)
		return err
	})
	switch {
	case err != nil:
		x.bad("nomad", "see whether Nomad runs there, and --nomad-address, --nomad-ca-cert and their like", "%s: %v", address, err)
	case leader == "":
		x.bad("nomad", "see the logs of Nomad's servers", "%s answers, and has no leader", address)
	default:
		x.fine("nomad", "%s answers; its leader is %s", address, leader)
	}
}

// policy tries what changes nothing.
func (x *examination) policy(ctx context.Context) {
	if err := x.checkToken(ctx); err != nil {
		x.bad("policy", "give the token the policy of docs/nomad.md", "%v", err)
		return
	}
	x.fine("policy", "jobs, allocations, evaluations and variables can be listed")
}

// template has Nomad look at what runners are made from, and counts the nodes
// that could have one.
func (x *examination) template(ctx context.Context) {
	job, err := x.checkTemplate(ctx)
	if err != nil {
		x.bad("template", "see --nomad-template, and the other settings of jobs", "%v", err)
		return
	}
	x.fine("template", "Nomad takes the job that runners are made from")
	_, task, err := runnerTask(job)
	if err != nil {
		x.bad("template", "see --nomad-template", "%v", err)
		return
	}
	all, _, err := x.client.Nodes().List(x.options())
	if err != nil {
		x.bad("policy", "give the token the policy of docs/nomad.md", "may not list nodes: %v", err)
		return
	}
	taking := 0
	for _, node := range all {
		if fit(node, task.Driver) {
			taking++
		}
	}
	if taking == 0 {
		x.bad("nodes", "see `nomad node status -verbose`, and whether --nomad-driver is one that nodes have",
			"of %d nodes none is ready and eligible with a healthy driver %s", len(all), task.Driver)
		return
	}
	x.fine("nodes", "%d of %d are ready, with a healthy driver %s", taking, len(all), task.Driver)
	if Driver(task.Driver) == RawExec {
		x.warn("driver", "use docker, podman or exec for programs that nobody has read", "raw_exec is unsafe: programs see the node's files and are on its network")
	}
}

func (x *examination) oversubscription() {
	if x.config.MemoryReserve >= 1 {
		return
	}
	const name, advice = "memory", "run `nomad operator scheduler set-config -memory-oversubscription true`, or set --nomad-memory-reserve 1"
	answer, _, err := x.client.Operator().SchedulerGetConfiguration(x.options())
	switch {
	case err != nil:
		x.warn(name, advice, "--nomad-memory-reserve is %g, and whether Nomad allows oversubscription can't be seen with this token", x.config.MemoryReserve)
	case !answer.SchedulerConfig.MemoryOversubscriptionEnabled:
		x.bad(name, advice, "--nomad-memory-reserve is %g, and Nomad doesn't allow oversubscription: runners get that share of their memory only", x.config.MemoryReserve)
	default:
		x.fine(name, "oversubscription is allowed")
	}
}

// usualConnections is Nomad's own http_max_conns_per_client.
const usualConnections = 100

// connections compares what this server opens with what Nomad takes of one
// address.
func (x *examination) connections() {
	const name = "connections"
	advice := "raise http_max_conns_per_client in the limits of Nomad's agents above the number of runners, and --nomad-bridges to that number"
	wanted := x.config.Bridges + x.config.Calls
	limit, known := x.limit()
	switch {
	case known && limit > 0 && wanted > limit:
		x.bad(name, "set --nomad-bridges lower, or "+advice, "Nomad takes %d of one address, and %d are wanted: --nomad-bridges and --nomad-calls together", limit, wanted)
	case known && limit > 0 && limit <= usualConnections:
		x.warn(name, advice, "Nomad takes %d of one address: of more runners than %d the idle ones are connected only when they are claimed", limit, x.config.Bridges)
	case known:
		x.fine(name, "%d are wanted, and Nomad takes as many of one address", wanted)
	case wanted > usualConnections:
		x.warn(name, advice, "%d are wanted; unless Nomad's http_max_conns_per_client was raised, it takes %d (with this token that can't be seen)", wanted, usualConnections)
	default:
		x.warn(name, advice, "%d are wanted, fewer than Nomad takes of one address unless that was lowered: of more runners the idle ones are connected only when they are claimed", wanted)
	}
}

// limit returns http_max_conns_per_client, where the token may read the agent.
func (x *examination) limit() (limit int, known bool) {
	var self api.AgentSelf
	if _, err := x.client.Raw().Query("/v1/agent/self", &self, x.options()); err != nil { // Self takes no context
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
