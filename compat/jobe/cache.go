package jobe

import (
	"container/list"
	"sync"

	"github.com/rockpool/rockpool/runtime"
)

// Limits of the files of all tenants.
const (
	maxCachedBytes = 128 << 20
	cachedBeside   = 512 // bytes of memory for a file, in addition to its id and content
)

// A cache holds uploaded files by tenant. When it is full, it evicts the least recently used file
// of the tenant with the most bytes. So one tenant can't evict the files of a smaller one. It is
// safe for concurrent use.
type cache struct {
	most int64 // bytes

	mu      sync.Mutex // guards the fields below
	bytes   int64
	tenants map[runtime.TenantID]*shelf
}

// A shelf has the files of one tenant.
type shelf struct {
	bytes int64
	files map[string]*list.Element
	order list.List // of *cachedFile, the most recently used first
}

// A cachedFile is a file of a shelf. Its content doesn't change.
type cachedFile struct {
	id      string
	content []byte
}

// size returns the bytes that the file counts towards the cache's limit.
func (c *cachedFile) size() int64 { return int64(len(c.id)+len(c.content)) + cachedBeside }

// newCache returns an empty cache for at most most bytes.
func newCache(most int64) *cache {
	return &cache{most: most, tenants: map[runtime.TenantID]*shelf{}}
}

// get returns the content of a tenant's file. Callers must not modify it.
func (c *cache) get(tenant runtime.TenantID, id string) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.tenants[tenant]
	if s == nil || s.files[id] == nil {
		return nil, false
	}
	s.order.MoveToFront(s.files[id])
	return s.files[id].Value.(*cachedFile).content, true
}

// put stores a file. It returns false if the file is larger than the cache.
func (c *cache) put(tenant runtime.TenantID, id string, content []byte) bool {
	file := &cachedFile{id, content}
	if file.size() > c.most {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Remove the previous file first, so that the two don't count together.
	if s := c.tenants[tenant]; s != nil && s.files[id] != nil {
		c.remove(tenant, s.files[id])
	}
	for c.bytes+file.size() > c.most {
		largest := c.largest()
		c.remove(largest, c.tenants[largest].order.Back())
	}
	s := c.tenants[tenant]
	if s == nil {
		s = &shelf{files: map[string]*list.Element{}}
		c.tenants[tenant] = s
	}
	s.files[id] = s.order.PushFront(file)
	s.bytes += file.size()
	c.bytes += file.size()
	return true
}

// largest returns the tenant with the most bytes. The cache must not be empty.
func (c *cache) largest() (largest runtime.TenantID) {
	most := int64(-1)
	for id, s := range c.tenants {
		if s.bytes > most || s.bytes == most && id < largest {
			largest, most = id, s.bytes
		}
	}
	return largest
}

// remove removes a file, and the tenant's shelf with its last file. The caller holds mu.
func (c *cache) remove(tenant runtime.TenantID, e *list.Element) {
	s := c.tenants[tenant]
	file := s.order.Remove(e).(*cachedFile)
	delete(s.files, file.id)
	s.bytes -= file.size()
	c.bytes -= file.size()
	if len(s.files) == 0 {
		delete(c.tenants, tenant)
	}
}
