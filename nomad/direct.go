package nomad

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

// direct is what is known of the ways to the client nodes themselves: a bridge
// that needn't go through the servers takes nothing from them.
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

// newDirect returns nil where no connection to a node is to be tried.
func (c Config) newDirect(settings api.Config, dial dialer) (*direct, error) {
	if c.DirectTimeout == 0 {
		return nil, nil
	}
	tls := settings.TLSConfig.Copy()
	if tls.TLSServerName == "" { // what a client's certificate is for, by Nomad's convention
		region := settings.Region
		region = cmp.Or(region, api.GlobalRegion)
		tls.TLSServerName = "client." + region + ".nomad"
	}
	client, err := newHTTP(tls, func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, c.DirectTimeout)
		defer cancel()
		return dial(ctx, network, address)
	}, 1)
	return &direct{client: client, nodes: map[string]node{}}, err
}

// execNear starts a command as connections.exec does, at the allocation's node
// if that can be reached.
func (c *Cluster) execNear(ctx context.Context, nodeID, allocation string, way bridgeWay) (*execConn, error) {
	d := c.nomad.direct
	if d == nil || nodeID == "" {
		return c.nomad.exec(ctx, allocation, way.Task, way.Command)
	}
	if address := c.addressOf(ctx, nodeID); address != nil {
		conn, err := c.nomad.execAt(ctx, address, d.client, allocation, way.Task, way.Command)
		if err == nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		d.know(nodeID, nil, unreachableFor)
	}
	return c.nomad.exec(ctx, allocation, way.Task, way.Command)
}

// addressOf returns where a node is reached, or nil if it isn't.
func (c *Cluster) addressOf(ctx context.Context, id string) *url.URL {
	d := c.nomad.direct
	d.mu.Lock()
	known, ok := d.nodes[id]
	d.mu.Unlock()
	if ok && time.Now().Before(known.until) {
		return known.address
	}
	var found *api.Node
	err := c.attempt(ctx, func(ctx context.Context) error {
		var err error
		found, _, err = c.nomad.calls.Nodes().Info(id, query(ctx))
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
