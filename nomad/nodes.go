package nomad

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/hashicorp/nomad/api"
)

// drainMemory is how long after a drain its end still explains that an
// allocation was stopped.
const drainMemory = time.Minute

// refreshNodes lists the nodes, if something happened to one since they were
// listed.
func (c *Cluster) refreshNodes(ctx context.Context) error {
	c.mu.Lock()
	old := c.nodesOld
	c.nodesOld = false
	c.mu.Unlock()
	if !old {
		return nil
	}
	nodes := map[string]*api.NodeListStub{}
	err := c.call(ctx, "list nodes", func(ctx context.Context) error {
		q := query(ctx)
		q.Params = map[string]string{"resources": "true"}
		all, _, err := c.nomad.calls.Nodes().List(q)
		for _, node := range all {
			nodes[node.ID] = node
		}
		return err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.nodesOld = true
		return err
	}
	c.nodes, c.nodesAt = nodes, time.Now()
	return nil
}

// drains reports whether a node is being drained, or was a moment ago. The
// caller holds mu.
func (c *Cluster) drains(id string) bool {
	node := c.nodes[id]
	if node == nil {
		return false
	}
	return node.Drain || node.LastDrain != nil && c.nodesAt.Sub(node.LastDrain.UpdatedAt) < drainMemory && node.SchedulingEligibility != api.NodeSchedulingEligible
}

func address(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
