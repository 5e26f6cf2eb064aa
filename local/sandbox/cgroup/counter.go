package cgroup

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Counter returns the same as Groups.Counts, for repeated calls: it keeps the files open, because
// opening them takes most of the time. It is safe for concurrent use.
type Counter struct {
	groups Groups
	once   sync.Once // guards open
	kept   bool      // the files are open
	kills  []*os.File
	hits   []*os.File
	used   *os.File // nil: CPU time isn't counted
}

// NewCounter returns a Counter. It opens the files at the first call. Close it.
func NewCounter(g Groups) *Counter { return &Counter{groups: g} }

// Counts is Groups.Counts. After Close it may fail.
func (c *Counter) Counts() (oomKills, processLimitHits int64, err error) {
	c.once.Do(c.open)
	if !c.kept {
		return c.groups.Counts()
	}
	if oomKills, err = sumOf(c.kills, killKey); err == nil {
		processLimitHits, err = sumOf(c.hits, hitKey)
	}
	return oomKills, processLimitHits, err
}

// CPU returns the CPU time used in the cgroups and in those of commands below, since they were
// made; 0 if nothing counts it.
func (c *Counter) CPU() time.Duration {
	c.once.Do(c.open)
	if c.used == nil {
		return 0
	}
	var text [countSize]byte
	n, _ := c.used.ReadAt(text[:], 0)
	return usedIn(text[:n])
}

// open opens all files or none.
func (c *Counter) open() {
	kills, hits, err := c.groups.counted()
	if err != nil {
		return // Groups.Counts reports it
	}
	if path := c.groups.used(); path != "" {
		if fd, err := open(path, unix.O_RDONLY); err == nil {
			c.used = os.NewFile(uintptr(fd), path)
		}
	}
	c.kept = true
	for _, of := range []struct {
		paths []string
		files *[]*os.File
	}{{kills, &c.kills}, {hits, &c.hits}} {
		for _, path := range of.paths {
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				c.kept = false
				c.close()
				return
			}
			*of.files = append(*of.files, os.NewFile(uintptr(fd), path))
		}
	}
}

// Close closes the files.
func (c *Counter) Close() {
	c.once.Do(func() {})
	c.close()
}

func (c *Counter) close() {
	for _, files := range [][]*os.File{c.kills, c.hits} {
		for _, f := range files {
			_ = f.Close()
		}
	}
	if c.used != nil {
		_ = c.used.Close()
	}
}

func sumOf(files []*os.File, key string) (all int64, err error) {
	for _, f := range files {
		var text [countSize]byte
		n, err := f.ReadAt(text[:], 0)
		if n == 0 {
			return 0, err
		}
		number, err := lineOf(f.Name(), text[:n], key)
		if err != nil {
			return 0, err
		}
		all += number
	}
	return all, nil
}
