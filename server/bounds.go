package server

import (
	"cmp"
	"syscall"

	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/graph/transport/peers"
)

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
	defaultBodyMemory  = 1 << 30
	MemoryOfConnection = 4 * 64 << 10
	memoryOfOperation  = 4 * 128 << 10
)

// bounds returns what peers may take of a server that has so much memory and may
// open so many files; 0 files: any number.
func bounds(c config.Bounds, maxBody, memory, files int64) peers.Bounds {
	least := transport.LeastBodies(maxBody)
	bodies := cmp.Or(c.BodyMemory, max(min(memory/4, defaultBodyMemory), least))
	connections := memory / MemoryOfConnection
	if files > 0 {
		connections = min(connections, files/4*3) // the rest is for runners and files
	}
	all := cmp.Or(c.Connections, max(int(connections), c.PeerConnections, 64))
	each := max(int(memory/memoryOfOperation), 64)
	b := peers.Bounds{
		AllConnections: all,
		Connections:    cmp.Or(c.PeerConnections, max(all/2, 1)),
		Operations:     cmp.Or(c.PeerOperations, each),
		Subscriptions:  cmp.Or(c.PeerSubscriptions, each),
		Bodies:         bodies,
		PeerBodies:     max(bodies/2, min(least, bodies)),
	}
	b.TokenOperations = cmp.Or(c.TokenOperations, 2*b.Operations)
	b.TokenBodies = max(bodies/4*3, b.PeerBodies)
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
