package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// At returns the groups at a path, without a process, after it has read back that they have these limits.
func (all Hierarchies) At(path string, want Limits) (g Groups, err error) {
	for controller, group := range map[string]*Group{"memory": &g.Memory, "pids": &g.Processes, "cpu": &g.CPU, "cpuacct": &g.Account} {
		if h, ok := all.Controller(controller); ok {
			*group = Group{Dir: filepath.Join(h.Mount, path), V2: h.V2}
		}
	}
	return g, g.verify(want)
}

// residue is how much memory a recycled group may keep: what the kernel charged for caches of names and files, which
// later processes would be charged for.
const residue = 2 << 20

// emptyWithin bounds the wait for the end of a group's last process: the kernel counts it for a moment after its
// parent was told.
const emptyWithin = time.Second

// Recycle proves that no process is left in a group, frees the memory that it keeps, and resets its peak. It returns
// the peak since the last time. After an error the group must not be used again.
func (all Hierarchies) Recycle(path string) (peak int64, err error) {
	pids, ok := all.Controller("pids")
	if !ok {
		return 0, errors.New("no tree counts processes")
	}
	for end := time.Now().Add(emptyWithin); ; {
		n, err := number(filepath.Join(pids.Mount, path, "pids.current"))
		if err != nil {
			return 0, err
		}
		if n == 0 {
			break
		}
		if time.Now().After(end) {
			return 0, fmt.Errorf("%d processes are left in %s", n, path)
		}
		time.Sleep(100 * time.Microsecond)
	}
	memory, ok := all.Controller("memory")
	if !ok {
		return 0, nil
	}
	dir := filepath.Join(memory.Mount, path)
	files := struct{ used, peak, free, reset string }{"memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.force_empty", "0"}
	if memory.V2 {
		files = struct{ used, peak, free, reset string }{"memory.current", "memory.peak", "memory.reclaim", "reset"}
	}
	if peak, err = number(filepath.Join(dir, files.peak)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	used, err := number(filepath.Join(dir, files.used))
	if err != nil {
		return 0, err
	}
	if used > residue {
		amount := "0"
		if memory.V2 {
			amount = strconv.FormatInt(used, 10)
		}
		_, _ = exchange(filepath.Join(dir, files.free), amount) // it fails if not all could be freed
		if used, err = number(filepath.Join(dir, files.used)); err != nil || used > residue {
			return 0, errors.Join(err, fmt.Errorf("%s keeps %d bytes", dir, used))
		}
	}
	text, err := exchange(filepath.Join(dir, files.peak), files.reset)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EINVAL) {
		return peak, nil // this kernel has no peak, or can't reset it
	}
	if err != nil {
		return 0, err
	}
	if now, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64); err != nil || now > residue {
		return 0, errors.Join(err, fmt.Errorf("the peak of %s is %d after its reset", dir, now))
	}
	return peak, nil
}

func number(file string) (int64, error) {
	text, err := readFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
}
