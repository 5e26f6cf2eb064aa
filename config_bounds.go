package main

import (
	"cmp"
	"fmt"
	"strconv"
	"syscall"

	"github.com/rockpool/rockpool/graph/transport"
)

// BoundsConfig are the settings for what callers may take of the server at a time. 0
// follows from the memory that it has.
type BoundsConfig struct {
	BodyMemory         int64 `env:"ROCKPOOL_BODY_MEMORY" default:"0" placeholder:"BYTES" help:"Bytes of memory for all requests, WebSocket messages and answers, max-body and 35200000 at least, to 1099511627776; one address has half of it at most, or what one largest request takes. 0: a quarter of the server's memory, at most 1073741824. (${default}; $$${env})"`
	Connections        int   `env:"ROCKPOOL_CONNECTIONS" default:"0" placeholder:"N" help:"Connections of all addresses, 1 to 10000000. 0: one for each 256 KiB of the server's memory, and three quarters of the files that it may open at most; peer-connections if that is more. (${default}; $$${env})"`
	PeerConnections    int   `env:"ROCKPOOL_PEER_CONNECTIONS" default:"0" placeholder:"N" help:"Connections of one address, 1 to 10000000. 0: half of connections. (${default}; $$${env})"`
	PeerOperations     int   `env:"ROCKPOOL_PEER_OPERATIONS" default:"0" placeholder:"N" help:"Queries, mutations and unfinished requests of one address at once, 1 to 10000000. 0: one for each 512 KiB of the server's memory. (${default}; $$${env})"`
	PeerSubscriptions  int   `env:"ROCKPOOL_PEER_SUBSCRIPTIONS" default:"0" placeholder:"N" help:"Subscriptions of one address, 1 to 10000000. 0: one for each 512 KiB of the server's memory. (${default}; $$${env})"`
	TokenOperations    int   `env:"ROCKPOOL_TOKEN_OPERATIONS" default:"0" placeholder:"N" help:"Operations at once of all who show the same token, or of all callers where there is none, 1 to 10000000. 0: twice as many as of one address. (${default}; $$${env})"`
	TokenSubscriptions int   `env:"ROCKPOOL_TOKEN_SUBSCRIPTIONS" default:"0" placeholder:"N" help:"Subscriptions of all who show the same token, or of all callers where there is none, 1 to 10000000. 0: twice as many as of one address. (${default}; $$${env})"`
}

const (
	maxBodyMemory     = 1 << 40
	maxPeers          = 10_000_000
	defaultBodyMemory = 1 << 30
)

// check refuses what is out of range. maxBody is of one request.
func (c *BoundsConfig) check(maxBody int64) error {
	if least := transport.LeastBodies(maxBody); c.BodyMemory != 0 && (c.BodyMemory < least || c.BodyMemory > maxBodyMemory) {
		return &settingError{"body-memory", strconv.FormatInt(c.BodyMemory, 10), fmt.Sprintf("%d to %d bytes with a max-body of %d, or 0 for a share of the server's memory", least, int64(maxBodyMemory), maxBody)}
	}
	for _, b := range []struct {
		flag  string
		value int
	}{
		{"connections", c.Connections}, {"peer-connections", c.PeerConnections}, {"peer-operations", c.PeerOperations}, {"peer-subscriptions", c.PeerSubscriptions},
		{"token-operations", c.TokenOperations}, {"token-subscriptions", c.TokenSubscriptions},
	} {
		if b.value < 0 || b.value > maxPeers {
			return &settingError{b.flag, strconv.Itoa(b.value), fmt.Sprintf("1 to %d, or 0 for as many as the server has memory for", maxPeers)}
		}
	}
	return nil
}

// maxHead is of a request's head, to which net/http adds 4 KiB. POST carries longer
// queries.
const maxHead = 16 << 10

// What one of each takes at most, of a quarter of the memory: a connection some 30
// KiB for its goroutine and buffers, and 26 for the largest head; an operation
// what is free of its body, document, fields and answer, 112 KiB, and its goroutine; an
// upload has a buffer of 64 KiB instead of most of these; a subscription twice
// transport.DefaultBudget for a reader that stalls. All connections share that quarter;
// operations and subscriptions of one peer do.
const (
	memoryOfConnection = 4 * 64 << 10
	memoryOfOperation  = 4 * 128 << 10
)

// bounds returns what peers may take of a server that has so much memory and may
// open so many files; 0 files: any number.
func (c *BoundsConfig) bounds(maxBody, memory, files int64) transport.Bounds {
	least := transport.LeastBodies(maxBody)
	bodies := cmp.Or(c.BodyMemory, max(min(memory/4, defaultBodyMemory), least))
	connections := memory / memoryOfConnection
	if files > 0 {
		connections = min(connections, files/4*3) // the rest is for runners and files
	}
	all := cmp.Or(c.Connections, max(int(connections), c.PeerConnections, 64))
	each := max(int(memory/memoryOfOperation), 64)
	b := transport.Bounds{
		AllConnections: all,
		Connections:    cmp.Or(c.PeerConnections, max(all/2, 1)),
		Operations:     cmp.Or(c.PeerOperations, each),
		Subscriptions:  cmp.Or(c.PeerSubscriptions, each),
		Bodies:         bodies,
		PeerBodies:     max(bodies/2, min(least, bodies)),
	}
	b.TokenOperations = cmp.Or(c.TokenOperations, 2*b.Operations)
	b.TokenSubscriptions = cmp.Or(c.TokenSubscriptions, 2*b.Subscriptions)
	return b
}

// fileLimit returns how many files this process may open; 0: it isn't known.
func fileLimit() int64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int64(min(limit.Cur, 1<<40))
}
