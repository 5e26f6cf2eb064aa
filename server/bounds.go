package server

import (
	"cmp"
	"syscall"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/config"
)

// maxHead bounds a request's line and headers; net/http adds 4 KiB. Longer queries need POST.
const maxHead = 16 << 10

// Maximum memory of one connection and one operation, times 4: each kind may use a quarter of the memory.
//
//   - A connection takes about 30 KiB for its goroutine and buffers, and 26 KiB for the largest head.
//     All connections share their quarter.
//   - An operation takes a goroutine, and up to 112 KiB of body, document, fields and response that
//     aren't charged otherwise. An upload has a buffer of 64 KiB instead of most of these. A
//     subscription of a stalled reader takes twice transport.DefaultBudget. The operations and
//     subscriptions of one peer share their quarter.
const (
	defaultBodyMemory  = 1 << 30
	MemoryOfConnection = 4 * 64 << 10
	memoryOfOperation  = 4 * 128 << 10
)

// bounds returns the limits of peers for a server with the given memory in bytes and number of open
// files; 0 files means no limit.
func bounds(c config.Bounds, maxBody, memory, files int64) clients.Bounds {
	least := clients.LeastMemory(maxBody)
	bodies := cmp.Or(c.BodyMemory, max(min(memory/4, defaultBodyMemory), least))
	connections := memory / MemoryOfConnection
	if files > 0 {
		connections = min(connections, files/4*3) // the rest is for runners and files
	}
	all := cmp.Or(c.Connections, max(int(connections), c.PeerConnections, 64))
	each := max(int(memory/memoryOfOperation), 64)
	b := clients.Bounds{
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

// keptMemory returns how many bytes a server with the given memory keeps for its callers beyond their
// requests; see quota.Memory. Go's garbage collector needs as much again.
func keptMemory(memory int64) int64 { return max(min(memory/8, defaultBodyMemory), 16<<20) }

// fileLimit returns the limit of open files of this process; 0 means unknown.
func fileLimit() int64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int64(min(limit.Cur, 1<<40))
}
