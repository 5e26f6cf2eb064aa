package output

import (
	"errors"
	"sync/atomic"
)

// ErrQuota says that all logs together take as much as they may.
var ErrQuota = errors.New("the room for output is used up")

// blockSize is what file systems give to files at once.
const blockSize = 4 << 10

// DiskBytes returns what a file of a size takes on the disk.
func DiskBytes(size int64) int64 { return (size + blockSize - 1) / blockSize * blockSize }

// A Quota bounds what logs take on the disk together, with what else is told to
// it. The logs being written count by themselves; those that have ended stay
// counted until somebody says that they are gone. A nil Quota bounds nothing.
// Its methods are safe for concurrent use.
type Quota struct {
	limit int64
	used  atomic.Int64
}

// NewQuota returns a quota of so many bytes.
func NewQuota(limit int64) *Quota { return &Quota{limit: limit} }

// Add counts n bytes more, or fewer, whether they fit or not.
func (q *Quota) Add(n int64) {
	if q != nil {
		q.used.Add(n)
	}
}

// Over returns by how many bytes the quota would be exceeded with n more; 0 or
// less: there is room.
func (q *Quota) Over(n int64) int64 {
	if q == nil {
		return 0
	}
	return q.used.Load() + n - q.limit
}

// Used returns what is counted, and how much that may be; both are 0 where
// nothing is bounded.
func (q *Quota) Used() (used, limit int64) {
	if q == nil {
		return 0, 0
	}
	return q.used.Load(), q.limit
}

// Reserve returns how much of the quota logs leave to the rest: or one that used
// up everything would have to go as soon as its end is stored.
func (q *Quota) Reserve() int64 {
	if q == nil {
		return 0
	}
	return q.limit / 64
}

// take counts n bytes of a log more if they fit.
func (q *Quota) take(n int64) bool {
	if q == nil || n == 0 {
		return true
	}
	if q.used.Add(n) > q.limit-q.Reserve() {
		q.used.Add(-n)
		return false
	}
	return true
}
