package groups

import (
	"bytes"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/serve"
)

// Counters are the kernel's counters of a group. They only grow, and groups are reused, so
// [Counters.Begin] records the values at a command's start. After Begin the methods are safe for
// concurrent use, except Refused.
type Counters struct {
	trees map[string]int // directories by controller; in version 2 only unified
	name  string
	kept  *keptFiles
	start counts       // at the command's start
	peak  atomic.Int64 // the largest number of processes that was sampled
	keeps atomic.Int64 // the process id of a child of the zygote that waits in the group, 0 if there is none

	ofRunner bool  // the group is the whole runner's: see RunnerGroup
	around   int64 // if ofRunner: the agent's threads in it before the command's start
	resets   bool  // the kernel's peak of memory was reset for this command

	// Version 2 resets a peak of memory only for the open file that was written to.
	memoryPeak *os.File
	devices    bool         // version 2: the io controller counts reads and writes
	seen       atomic.Int64 // the largest sampled memory, if the kernel can't reset the peak
	together   *refusals    // version 2: shared by all groups of a runner
}

type counts struct {
	refused, oomKills  int64
	refusedTogether    int64 // the forks refused by the limit of all commands that are charged to this group
	cpu                int64 // nanoseconds, counted by the scheduler
	user, system       int64 // nanoseconds, estimated by the kernel's timer interrupts
	read, written      int64 // bytes, from and to disks
	memory, mostMemory int64 // bytes: now, and the peak
	mostProcesses      int64
}

// keptFiles keeps files of groups open after their first read, by controller and name. A command
// causes about twenty reads, and opening would be most of their cost.
type keptFiles struct {
	mu   sync.Mutex // guards open; the watch of an execution reads concurrently
	open map[[2]string]int
}

func newKeptFiles() *keptFiles { return &keptFiles{open: map[[2]string]int{}} }

// peakFile is the peak of memory in version 1. A write resets it.
const peakFile = "memory.max_usage_in_bytes"

// Begin records the counters. Call it before the command starts.
func (c *Counters) Begin() {
	if fd := c.file("memory", peakFile); fd >= 0 {
		_, err := unix.Pwrite(fd, []byte("0"), 0)
		c.resets = err == nil
	}
	if c.isUnified() {
		c.forgetPeak()
		c.resets = c.memoryPeak != nil
	}
	// This comes after the resets, so that it has the new peaks.
	c.start = c.now()
	c.peak.Store(0)
	c.seen.Store(0)
}

// now reads all counters. A counter that the kernel doesn't have is 0.
func (c *Counters) now() (n counts) {
	if c.isUnified() {
		return c.nowUnified()
	}
	n.refused = c.number("pids", "pids.events", "max")
	n.mostProcesses = c.number("pids", "pids.peak", "")
	n.oomKills = c.number("memory", "memory.oom_control", "oom_kill")
	n.memory = c.memoryNow()
	n.mostMemory = c.number("memory", "memory.max_usage_in_bytes", "")
	n.cpu = c.number("cpuacct", "cpuacct.usage", "")
	n.user = c.number("cpuacct", "cpuacct.usage_user", "")
	n.system = c.number("cpuacct", "cpuacct.usage_sys", "")
	if c.has("blkio") {
		var buf [2048]byte
		text := c.text(buf[:], "blkio", "blkio.throttle.io_service_bytes")
		n.read, n.written = sum(text, "Read"), sum(text, "Write")
	}
	return n
}

func (c *Counters) memoryNow() int64 {
	if c.isUnified() {
		return c.number("memory", "memory.current", "")
	}
	return c.number("memory", "memory.usage_in_bytes", "")
}

func (c *Counters) isUnified() bool { _, ok := c.trees[unified]; return ok }

func (c *Counters) has(controller string) bool {
	if c.isUnified() && controller == "blkio" {
		return c.devices
	}
	return c.tree(controller) >= 0
}

// tree returns the directory of the tree in which a controller counts, -1 if there is none.
func (c *Counters) tree(controller string) int {
	if tree, ok := c.trees[unified]; ok {
		return tree
	}
	if tree, ok := c.trees[controller]; ok {
		return tree
	}
	return -1
}

// launchers returns the number of tasks in the group that belong to no command: a thread of the
// agent, and a waiting child of the zygote.
func (c *Counters) launchers() int64 {
	switch {
	case c.ofRunner:
		return c.around
	case c.isUnified():
		return 0
	case c.keeps.Load() != 0:
		return 2
	}
	return 1
}

// CountsCPU reports whether the kernel counts the group's processor time.
func (c *Counters) CountsCPU() bool { return c.has("cpuacct") }

// CPU returns the processor time since Begin, 0 if it can't be read.
func (c *Counters) CPU() time.Duration {
	if c.isUnified() {
		now, _, _ := c.processorTime()
		return time.Duration(now - c.start.cpu)
	}
	return time.Duration(c.number("cpuacct", "cpuacct.usage", "") - c.start.cpu)
}

// Refused returns the number of forks that were refused since Begin. It also samples the number of
// processes. Only one goroutine may call it at a time.
func (c *Counters) Refused() int64 {
	c.peak.Store(max(c.peak.Load(), c.processes()))
	if !c.resets {
		c.seen.Store(max(c.seen.Load(), c.memoryNow()))
	}
	own := c.number("pids", "pids.events", "max") - c.start.refused
	if c.isUnified() && !c.ofRunner {
		own += c.together.of(c) - c.start.refusedTogether
	}
	return own
}

// End adds the counts since Begin to the usage that wait(2) reported.
func (c *Counters) End(u *serve.Usage) {
	c.add(u, c.now())
	if c.ofRunner && c.memoryPeak != nil { // opened for each command, whereas a group keeps its own
		_ = c.memoryPeak.Close()
		c.memoryPeak = nil
	}
}

// Now is like End while the command runs, and adds the resources held now. It must not be called
// after End.
func (c *Counters) Now(now *agent.Used) {
	at, usage := c.now(), serve.Usage{User: now.User, System: now.System, PeakMemory: now.PeakMemory}
	c.add(&usage, at)
	now.User, now.System = usage.User, usage.System
	now.Memory, now.Processes = max(0, at.memory-c.start.memory), int(max(0, c.processes()))
	now.PeakMemory, now.PeakProcesses = max(usage.PeakMemory, now.Memory), max(usage.PeakProcesses, now.Processes)
}

func (c *Counters) processes() int64 { return c.number("pids", "pids.current", "") - c.launchers() }

func (c *Counters) add(u *serve.Usage, end counts) {
	u.Refused, u.OOMKills = end.refused-c.start.refused+end.refusedTogether-c.start.refusedTogether, end.oomKills-c.start.oomKills
	// The rest is of processes that weren't waited for. Its division into user and system time is a guess.
	if rest := time.Duration(end.cpu-c.start.cpu) - u.User - u.System; rest > 0 {
		user := min(rest, max(0, time.Duration(end.user-c.start.user)-u.User))
		u.User += user
		u.System += rest - user
	}
	// The page cache of an earlier command's files doesn't count for this command. The kernel's peak replaces
	// the one of wait(2): that includes the agent's pages that the command had before its exec, and pages
	// of files that the group isn't charged for. If the command freed what an earlier one had left, the
	// peak minus that is too low.
	known := c.resets || end.mostMemory > c.start.mostMemory
	if most := c.mostMemory(end) - c.start.memory; known && end.memory >= c.start.memory {
		u.PeakMemory = most
	} else {
		u.PeakMemory = max(u.PeakMemory, most)
	}
	u.PeakProcesses = int(max(c.peak.Load(), 1))
	if end.mostProcesses > c.start.mostProcesses {
		u.PeakProcesses = int(end.mostProcesses - c.launchers())
	}
	if c.has("blkio") {
		read, written := end.read-c.start.read, end.written-c.start.written
		u.BytesRead, u.BytesWritten = &read, &written
	}
}

// total adds the usage of all processes since the group was made, and the resources held now.
func (c *Counters) total(now *agent.Used) {
	now.Memory, now.Processes = c.memoryNow(), int(c.number("pids", "pids.current", ""))
	all, user := c.number("cpuacct", "cpuacct.usage", ""), c.number("cpuacct", "cpuacct.usage_user", "")
	if c.isUnified() {
		all, user, _ = c.processorTime()
	}
	now.User = time.Duration(min(user, all))
	now.System = time.Duration(all) - now.User
}

// mostMemory returns the command's peak of memory. If the kernel's peak may be an earlier
// command's, it returns the largest sample instead.
func (c *Counters) mostMemory(end counts) int64 {
	if !c.resets && end.mostMemory == c.start.mostMemory {
		return c.seen.Load()
	}
	return end.mostMemory
}

// number returns a number in a file of the group: the file's only one, or the sum of those that
// follow key on their lines. It is 0 if the file can't be read.
func (c *Counters) number(controller, file, key string) int64 {
	var buf [2048]byte
	return sum(c.text(buf[:], controller, file), key)
}

// sum adds up the numbers on the lines whose last word before the number is key. An empty key means
// lines of only a number.
func sum(text []byte, key string) (all int64) {
	for line := range bytes.Lines(text) {
		name, value := []byte(nil), bytes.TrimSpace(line)
		if i := bytes.LastIndexByte(value, ' '); i >= 0 {
			name, value = value[:i], value[i+1:]
		}
		if i := bytes.LastIndexByte(name, ' '); i >= 0 {
			name = name[i+1:] // lines of blkio begin with the device
		}
		if string(name) == key {
			number, _ := strconv.ParseInt(string(value), 10, 64)
			all += number
		}
	}
	return all
}

func (c *Counters) text(buf []byte, controller, file string) []byte {
	fd := c.file(controller, file)
	if fd < 0 {
		return nil
	}
	n, _ := unix.Pread(fd, buf, 0)
	return buf[:max(n, 0)]
}

// file returns an open file of the group, -1 if it doesn't exist.
func (c *Counters) file(controller, file string) int {
	tree := c.tree(controller)
	if tree < 0 {
		return -1
	}
	c.kept.mu.Lock()
	defer c.kept.mu.Unlock()
	key := [2]string{c.name, file}
	if fd, ok := c.kept.open[key]; ok {
		return fd
	}
	flags := unix.O_RDONLY
	if file == peakFile {
		flags = unix.O_RDWR
	}
	fd, err := openIn(tree, c.name+"/"+file, flags)
	if err == unix.EROFS || err == unix.EACCES { // in a container it may be read-only
		fd, err = openIn(tree, c.name+"/"+file, unix.O_RDONLY)
	}
	if err != nil {
		return -1
	}
	c.kept.open[key] = fd
	return fd
}
