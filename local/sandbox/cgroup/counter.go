package cgroup

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Counter reads what the kernel counted in the cgroups of a process and in those of commands
// below, since they were made. It keeps the files open, because opening them takes most of the time.
// It is safe for concurrent use.
type Counter struct {
	groups Groups

	mu     sync.Mutex     // guards the fields below; held while files are opened
	files  *countingFiles // nil before they were opened
	closed bool
}

type countingFiles struct {
	kills, hits []*os.File
	used        []*os.File // at most one; none if CPU time isn't counted
}

// NewCounter returns a Counter. It opens the files at the first call that can. Close it.
func NewCounter(g Groups) *Counter { return &Counter{groups: g} }

// Counts returns how many processes the kernel killed for memory, and how many forks it refused.
// Missing controllers count 0. After Close it fails.
func (c *Counter) Counts() (oomKills, processLimitHits int64, err error) {
	files, err := c.open()
	if err != nil {
		return 0, 0, err
	}
	if oomKills, err = sum(files.kills, "oom_kill"); err == nil {
		processLimitHits, err = sum(files.hits, "max")
	}
	return oomKills, processLimitHits, err
}

// Counts returns the counts of a Counter of these cgroups.
func (g Groups) Counts() (oomKills, processLimitHits int64, err error) {
	c := NewCounter(g)
	defer c.Close()
	return c.Counts()
}

// CPU returns the CPU time used; 0 if nothing counts it.
func (c *Counter) CPU() time.Duration {
	files, err := c.open()
	if err != nil || len(files.used) == 0 {
		return 0
	}
	var text [countSize]byte
	n, _ := files.used[0].ReadAt(text[:], 0)
	return usedIn(text[:n])
}

// open returns the open files. It opens all or none.
func (c *Counter) open() (*countingFiles, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, fs.ErrClosed
	case c.files != nil:
		return c.files, nil
	}
	kills, hits, err := c.groups.counted()
	if err != nil {
		return nil, err
	}
	f := &countingFiles{}
	if f.kills, err = openAll(kills); err == nil {
		f.hits, err = openAll(hits)
	}
	if err != nil {
		f.close()
		return nil, err
	}
	f.used, _ = openAll(c.groups.used())
	c.files = f
	return f, nil
}

// openAll opens files for reading. After an error it returns those that it opened.
func openAll(paths []string) (files []*os.File, err error) {
	for _, path := range paths {
		fd, err := open(path, unix.O_RDONLY)
		if err != nil {
			return files, err
		}
		files = append(files, os.NewFile(uintptr(fd), path))
	}
	return files, nil
}

// Close closes the files.
func (c *Counter) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files != nil {
		c.files.close()
	}
	c.files, c.closed = nil, true
}

func (f *countingFiles) close() {
	for _, file := range slices.Concat(f.kills, f.hits, f.used) {
		_ = file.Close()
	}
}

// counted returns the files that count OOM kills and refused forks.
func (g Groups) counted() (kills, hits []string, err error) {
	memory, err := g.Memory.parts()
	if err != nil {
		return nil, nil, err
	}
	processes, err := g.Processes.parts()
	if err != nil {
		return nil, nil, err
	}
	file := "memory.oom_control" // counts kills in this cgroup only
	if g.Memory.V2 {
		file, memory = "memory.events", memory[:1] // includes the cgroups below
	}
	inherited, err := exists(filepath.Join(g.Processes.Dir, "pids.events.local"))
	if err != nil {
		return nil, nil, err
	}
	if inherited {
		processes = processes[:1] // from Linux 6.11 on it includes the cgroups below
	}
	return filesIn(memory, file), filesIn(processes, "pids.events"), nil
}

// used returns the file that counts the CPU time of the cgroup and those below, if there is one.
func (g Groups) used() []string {
	if g.CPU.V2 && g.Account.Dir == "" {
		return filesIn([]string{g.CPU.Dir}, "cpu.stat")
	}
	return filesIn([]string{g.Account.Dir}, "cpuacct.usage")
}

// filesIn returns the paths of a file in each of the directories. An empty one means that the
// controller is missing.
func filesIn(dirs []string, file string) (paths []string) {
	for _, dir := range dirs {
		if dir != "" {
			paths = append(paths, filepath.Join(dir, file))
		}
	}
	return paths
}

func usedIn(text []byte) time.Duration {
	if rest, ok := bytes.CutPrefix(text, []byte("usage_usec ")); ok { // cpu.stat begins with it
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		n, _ := strconv.ParseInt(string(line), 10, 64)
		return time.Duration(n) * time.Microsecond
	}
	n, _ := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	return time.Duration(n)
}

// countSize is larger than any counting file.
const countSize = 512

// sum adds up the numbers after key in files of "key number" lines.
func sum(files []*os.File, key string) (all int64, err error) {
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

func lineOf(file string, text []byte, key string) (int64, error) {
	for line := range strings.Lines(string(text)) {
		if name, number, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " "); ok && name == key {
			return strconv.ParseInt(number, 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no line %q", file, key)
}
