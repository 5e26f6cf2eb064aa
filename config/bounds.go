package config

import (
	"fmt"
	"strconv"

	"github.com/rockpool/rockpool/graph/transport"
)

// Bounds are the settings for what callers may take of the server at a time. 0
// follows from the memory that it has.
type Bounds struct {
	BodyMemory         int64 `env:"ROCKPOOL_BODY_MEMORY" default:"0" type:"size" placeholder:"SIZE" help:"Bytes of memory for all requests, WebSocket messages and answers, max-body and 35200000 at least, to 1099511627776; one address has half of it at most, or what one largest request takes. 0: a quarter of the server's memory, at most 1073741824. (${default}; $$${env})"`
	Connections        int   `env:"ROCKPOOL_CONNECTIONS" default:"0" placeholder:"N" help:"Connections of all addresses, 1 to 10000000. 0: one for each 256 KiB of the server's memory, but at most three quarters of the files that it may open, and at least peer-connections. (${default}; $$${env})"`
	PeerConnections    int   `env:"ROCKPOOL_PEER_CONNECTIONS" default:"0" placeholder:"N" help:"Connections of one address, 1 to 10000000. 0: half of connections. (${default}; $$${env})"`
	PeerOperations     int   `env:"ROCKPOOL_PEER_OPERATIONS" default:"0" placeholder:"N" help:"Queries, mutations and unfinished requests of one address at once, 1 to 10000000. 0: one for each 512 KiB of the server's memory. (${default}; $$${env})"`
	PeerSubscriptions  int   `env:"ROCKPOOL_PEER_SUBSCRIPTIONS" default:"0" placeholder:"N" help:"Subscriptions of one address, 1 to 10000000. 0: one for each 512 KiB of the server's memory. (${default}; $$${env})"`
	TokenOperations    int   `env:"ROCKPOOL_TOKEN_OPERATIONS" default:"0" placeholder:"N" help:"Operations at once with the same token or the same grant, or of all callers if no token is needed, 1 to 10000000. 0: twice as many as of one address. (${default}; $$${env})"`
	TokenSubscriptions int   `env:"ROCKPOOL_TOKEN_SUBSCRIPTIONS" default:"0" placeholder:"N" help:"Subscriptions with the same token or the same grant, or of all callers if no token is needed, 1 to 10000000. 0: twice as many as of one address. (${default}; $$${env})"`
}

const (
	maxBodyMemory = 1 << 40
	maxPeers      = 10_000_000
)

// check refuses what is out of range. maxBody is of one request.
func (c *Bounds) check(maxBody int64) error {
	if least := transport.LeastBodies(maxBody); c.BodyMemory != 0 && (c.BodyMemory < least || c.BodyMemory > maxBodyMemory) {
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
