package connection

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
)

// direct reaches client nodes directly, which puts no load on Nomad's servers.
type direct struct {
	client *http.Client // connecting fails after Config.DirectTimeout

	mu    sync.Mutex // guards nodes
	nodes map[string]node
}

type node struct {
	address *url.URL  // nil if it can't be reached
	until   time.Time // when this must be checked again
}

// How long the knowledge about a node is valid.
const (
	knownFor       = 10 * time.Minute
	unreachableFor = time.Minute
)

func (c *Client) newDirect(timeout time.Duration, dial Dialer) (*direct, error) {
	tls := c.settings.TLSConfig.Copy()
	if tls.TLSServerName == "" { // by Nomad's convention the name in a client's certificate
		tls.TLSServerName = "client." + cmp.Or(c.settings.Region, api.GlobalRegion) + ".nomad"
	}
	client, err := c.newHTTP(tls, func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return dial(ctx, network, address)
	}, 1)
	return &direct{client: client, nodes: map[string]node{}}, err
}

// Exec starts a command in a task of an allocation. It connects to the allocation's node directly
// if possible, otherwise through Nomad's servers. A nodeID of "" is an unknown node. Ctx bounds
// only the start.
func (c *Client) Exec(ctx context.Context, nodeID, allocation, task string, argv []string) (*Exec, error) {
	d := c.direct
	if d == nil || nodeID == "" {
		return c.execAt(ctx, c.address, c.execs, allocation, task, argv)
	}
	if address := c.addressOf(ctx, nodeID); address != nil {
		conn, err := c.execAt(ctx, address, d.client, allocation, task, argv)
		if err == nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		// Later calls go through the servers without waiting for this node.
		d.remember(nodeID, nil, unreachableFor)
	}
	return c.execAt(ctx, c.address, c.execs, allocation, task, argv)
}

func (c *Client) addressOf(ctx context.Context, id string) *url.URL {
	d := c.direct
	d.mu.Lock()
	known, ok := d.nodes[id]
	d.mu.Unlock()
	if ok && time.Now().Before(known.until) {
		return known.address
	}
	var found *api.Node
	err := c.Attempt(ctx, func(ctx context.Context) error {
		var err error
		found, _, err = c.api.Nodes().Info(id, Query(ctx))
		return err
	})
	if err != nil || found.HTTPAddr == "" {
		d.remember(id, nil, unreachableFor)
		return nil
	}
	address := &url.URL{Scheme: "http", Host: found.HTTPAddr}
	if found.TLSEnabled {
		address.Scheme = "https"
	}
	d.remember(id, address, knownFor)
	return address
}

// remember records the address of a node, nil if it can't be reached, for some time.
func (d *direct) remember(id string, address *url.URL, during time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nodes[id] = node{address, time.Now().Add(during)}
}
