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

// direct is what is known of the ways to the client nodes themselves: a command that
// doesn't go through the servers takes nothing from them.
type direct struct {
	client *http.Client // whose connections are given up after Config.DirectTimeout

	mu    sync.Mutex // guards what follows
	nodes map[string]node
}

// A node is the address of one, or that it can't be reached.
type node struct {
	address *url.URL // nil: it can't
	until   time.Time
}

// How long what is known of a node is believed.
const (
	knownFor       = 10 * time.Minute
	unreachableFor = time.Minute
)

func newDirect(timeout time.Duration, settings api.Config, dial Dialer) (*direct, error) {
	tls := settings.TLSConfig.Copy()
	if tls.TLSServerName == "" { // what a client's certificate is for, by Nomad's convention
		tls.TLSServerName = "client." + cmp.Or(settings.Region, api.GlobalRegion) + ".nomad"
	}
	client, err := newHTTP(tls, func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return dial(ctx, network, address)
	}, 1)
	return &direct{client: client, nodes: map[string]node{}}, err
}

// Exec starts a command in a task of an allocation, at the allocation's node if that can be
// reached directly, else through the servers; node "" is an unknown one. Ctx bounds the
// start only.
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
		d.know(nodeID, nil, unreachableFor)
	}
	return c.execAt(ctx, c.address, c.execs, allocation, task, argv)
}

// addressOf returns where a node is reached, or nil if it isn't.
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
		d.know(id, nil, unreachableFor)
		return nil
	}
	address := &url.URL{Scheme: "http", Host: found.HTTPAddr}
	if found.TLSEnabled {
		address.Scheme = "https"
	}
	d.know(id, address, knownFor)
	return address
}

func (d *direct) know(id string, address *url.URL, during time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nodes[id] = node{address, time.Now().Add(during)}
}
