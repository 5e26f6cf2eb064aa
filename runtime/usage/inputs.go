package usage

import (
	"context"
	"sync"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/logdir"
	"github.com/rockpool/rockpool/runtime/quota"
)

// smallInput is the size up to which an input is stored even if no space is left.
const smallInput = 64 << 10

// Inputs charge what the store keeps of unfinished executions and batches to the space for
// executions: commands, variables, stdin, files, expected outputs. A tenant gets a share of half of
// this space.
type Inputs struct {
	logs *logdir.Dir

	mu     sync.Mutex // guards shares
	shares quota.Bound
}

// NewInputs returns Inputs that charge nothing yet. keepBytes is the size of the space for executions.
func NewInputs(logs *logdir.Dir, keepBytes int64) *Inputs {
	return &Inputs{logs: logs, shares: quota.Bound{Limit: keepBytes / 2, Quota: "inputs", Of: "bytes of inputs of executions and batches"}}
}

// Add charges n bytes, after it has removed finished executions if they need the room. It returns
// QUOTA_EXCEEDED if the tenant has its share, and STORAGE_FULL if there is no room.
func (c *Inputs) Add(ctx context.Context, id runtime.TenantID, n int64) error {
	if n <= smallInput || c.logs.Quota() == nil {
		c.Adopt(id, n)
		return nil
	}
	c.mu.Lock()
	err := c.shares.AcquireN(id, n)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	c.logs.MakeRoom(ctx, n)
	// Adding first prevents two inputs from taking the same room.
	if c.logs.Quota().Add(n); c.logs.Quota().Over(0) > 0 {
		c.Release(id, n)
		_, limit := c.logs.Quota().Used()
		return runtime.Errorf(runtime.CodeStorageFull, "the input has %d bytes, and doesn't fit into the %d bytes of --keep-bytes: try again when other executions have ended", n, limit)
	}
	return nil
}

// Adopt charges n bytes, even if there is no room.
func (c *Inputs) Adopt(id runtime.TenantID, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shares.AdoptN(id, n)
	c.logs.Quota().Add(n)
}

// Release ends the charge of n bytes.
func (c *Inputs) Release(id runtime.TenantID, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shares.ReleaseN(id, n)
	c.logs.Quota().Add(-n)
}

// InputOf returns what the store keeps of an unfinished execution whose encoded start has this size.
func InputOf(x runtime.Execution, start int64) int64 {
	n := start + int64(len(x.Line))
	for _, arg := range x.Command {
		n += int64(len(arg))
	}
	return n
}
