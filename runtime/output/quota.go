package output

import (
	"errors"
	"sync/atomic"
)

// ErrQuota says that all logs together have reached their limit.
var ErrQuota = errors.New("the space for output is used up")

// blockSize is the usual block size of file systems.
const blockSize = 4 << 10

// DiskBytes returns the disk use of a file of this size.
func DiskBytes(size int64) int64 { return (size + blockSize - 1) / blockSize * blockSize }

// A Quota limits the disk use of all logs together, and of whatever else is added to it. Running
// logs count themselves; finished ones stay counted until they are subtracted by Add. A nil Quota
// limits nothing. Its methods are safe for concurrent use.
type Quota struct {
	limit int64
	used  atomic.Int64
}

// NewQuota returns a quota of limit bytes.
func NewQuota(limit int64) *Quota { return &Quota{limit: limit} }

// Add adds n bytes, which may be negative, even if that exceeds the limit.
func (q *Quota) Add(n int64) {
	if q != nil {
		q.used.Add(n)
	}
}

// Over returns by how many bytes n more bytes would exceed the limit; 0 or less means that they fit.
func (q *Quota) Over(n int64) int64 {
	if q == nil {
		return 0
	}
	return q.used.Load() + n - q.limit
}

// Used returns the bytes used and the limit; both are 0 without a limit.
func (q *Quota) Used() (used, limit int64) {
	if q == nil {
		return 0, 0
	}
	return q.used.Load(), q.limit
}

// Reserve returns the part of the limit that logs leave free for other records. Without it, a log
// that used up everything would have to be removed as soon as its execution's end is stored.
func (q *Quota) Reserve() int64 {
	if q == nil {
		return 0
	}
	return q.limit / 64
}

// take adds n bytes of a log if they fit.
func (q *Quota) take(n int64) bool {
	if q == nil || n == 0 {
		return true
	}
	// Adding first prevents two logs from taking the same room.
	if q.used.Add(n) > q.limit-q.Reserve() {
		q.used.Add(-n)
		return false
	}
	return true
}
