package config

import (
	"fmt"
	"strconv"

	"github.com/rockpool/rockpool/clients"
)

// Bounds are the limits for callers. 0 means a default that follows from the server's memory.
type Bounds struct {
	BodyMemory         int64 `env:"ROCKPOOL_BODY_MEMORY" default:"0" type:"size" placeholder:"SIZE" help:"Memory for all requests, WebSocket messages and answers together. One address can use half of it, or the memory of one largest request if that is more. A request that doesn't fit gets 503. The first 16 KiB of each request and uploaded files don't count. Allowed: --max-body plus 35200000 bytes, to 1TiB; 0: a quarter of the server's memory, at most 1GiB. (${default}; $$${env})"`
	Connections        int   `env:"ROCKPOOL_CONNECTIONS" default:"0" placeholder:"N" help:"Connections of all addresses together. A further one gets 429. Allowed: 1 to 10000000; 0: one for each 256 KiB of the server's memory, at most three quarters of the files that it may open, and at least --peer-connections. (${default}; $$${env})"`
	PeerConnections    int   `env:"ROCKPOOL_PEER_CONNECTIONS" default:"0" placeholder:"N" help:"Connections of one address; for IPv6, of one network of 64 bits. A further one gets 429. Behind a proxy that isn't in --trusted-proxies, all clients are one address. Allowed: 1 to 10000000; 0: half of --connections. (${default}; $$${env})"`
	PeerOperations     int   `env:"ROCKPOOL_PEER_OPERATIONS" default:"0" placeholder:"N" help:"Concurrent queries, mutations and unfinished requests of one address. A further one gets 429. Allowed: 1 to 10000000; 0: one for each 512 KiB of the server's memory. (${default}; $$${env})"`
	PeerSubscriptions  int   `env:"ROCKPOOL_PEER_SUBSCRIPTIONS" default:"0" placeholder:"N" help:"Concurrent subscriptions of one address. A further one gets 429. Allowed: 1 to 10000000; 0: one for each 512 KiB of the server's memory. (${default}; $$${env})"`
	TokenOperations    int   `env:"ROCKPOOL_TOKEN_OPERATIONS" default:"0" placeholder:"N" help:"Concurrent operations with the same token or the same grant. All callers without a token share one such limit. Allowed: 1 to 10000000; 0: twice --peer-operations. (${default}; $$${env})"`
	TokenSubscriptions int   `env:"ROCKPOOL_TOKEN_SUBSCRIPTIONS" default:"0" placeholder:"N" help:"Concurrent subscriptions with the same token or the same grant. All callers without a token share one such limit. Allowed: 1 to 10000000; 0: twice --peer-subscriptions. (${default}; $$${env})"`
}

// The maximum of body-memory, in bytes, and of the other limits.
const (
	maxBodyMemory = 1 << 40
	maxPeers      = 10_000_000
)

// check returns an [Error] for a value out of range. maxBody is the largest body of one request.
func (c *Bounds) check(maxBody int64) error {
	if least := clients.LeastMemory(maxBody); c.BodyMemory != 0 && (c.BodyMemory < least || c.BodyMemory > maxBodyMemory) {
		return &Error{"body-memory", strconv.FormatInt(c.BodyMemory, 10), fmt.Sprintf("%d to %d bytes with a max-body of %d, or 0 for a share of the server's memory", least, int64(maxBodyMemory), maxBody)}
	}
	for _, b := range []struct {
		flag  string
		value int
	}{
		{"connections", c.Connections}, {"peer-connections", c.PeerConnections}, {"peer-operations", c.PeerOperations}, {"peer-subscriptions", c.PeerSubscriptions},
		{"token-operations", c.TokenOperations}, {"token-subscriptions", c.TokenSubscriptions},
	} {
		if b.value < 0 || b.value > maxPeers {
			return &Error{b.flag, strconv.Itoa(b.value), fmt.Sprintf("1 to %d, or 0 for as many as the server has memory for", maxPeers)}
		}
	}
	return nil
}
