package config

import (
	"cmp"
	"fmt"

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

// check returns an [Error] for a value out of range. maxBody is the largest body of one request.
func (c *Bounds) check(maxBody int64) error {
	const most, zero = 10_000_000, ", or 0 for as many as the server has memory for"
	return cmp.Or(
		zeroOr("body-memory", c.BodyMemory, clients.LeastMemory(maxBody), 1<<40, fmt.Sprintf(" bytes with a max-body of %d, or 0 for a share of the server's memory", maxBody)),
		zeroOr("connections", c.Connections, 1, most, zero),
		zeroOr("peer-connections", c.PeerConnections, 1, most, zero),
		zeroOr("peer-operations", c.PeerOperations, 1, most, zero),
		zeroOr("peer-subscriptions", c.PeerSubscriptions, 1, most, zero),
		zeroOr("token-operations", c.TokenOperations, 1, most, zero),
		zeroOr("token-subscriptions", c.TokenSubscriptions, 1, most, zero),
	)
}

// within returns an [Error] unless a setting is in a range. what follows the range in the error: a
// unit, for example.
func within[N int | int64 | float64](flag string, value, low, high N, what string) error {
	if value >= low && value <= high { // false for NaN
		return nil
	}
	return &Error{flag, fmt.Sprint(value), fmt.Sprintf("%v to %v%s", low, high, what)}
}

// zeroOr is like within, but also accepts 0.
func zeroOr[N int | int64](flag string, value, low, high N, what string) error {
	if value == 0 {
		return nil
	}
	return within(flag, value, low, high, what)
}
