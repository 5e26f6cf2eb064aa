package groups

import (
	"bytes"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/serve"
)

// Counters are what the kernel counts for a group. They only grow, and the group is used again,
// so [Counters.Begin] notes what they were at a command's start. Their methods may be called at
// once after it.
type Counters struct {
	trees map[string]int // by controller; in version 2 only unified
	name  string
	kept  *keptFiles
	start counts
	peak  atomic.Int64 // the most processes that were seen
	keeps atomic.Int64 // a process that waits in the group for its commands; 0: none

	whole  bool  // the group is the whole runner's: Whole
	around int64 // then: the threads that the agent had in it before the command
	resets bool  // the peak of memory is of this command alone

	// Version 2 forgets a peak of memory for a descriptor of the file only.
	memoryPeak *os.File
	devices    bool         // version 2: what is read and written is counted
	seen       atomic.Int64 // the most memory that was seen, where the kernel can't forget a peak
	together   *refusals    // version 2: shared by all groups of a runner
}

// Counts are the counters at a time.
type counts struct {
	refused, oomKills  int64
	refusedTogether    int64 // the group's share of what the limit of all commands together refused
	cpu                int64 // nanoseconds, as the scheduler counts them
	user, system       int64 // likewise, as the kernel estimates them by its timer's interrupts
	read, written      int64
	memory, mostMemory int64
	mostProcesses      int64
}

// keptFiles are the files of groups that were read once, by group and name. A command has
// some twenty reads of them, most of whose cost would be the opening.
type keptFiles struct {
	mu   sync.Mutex // the watch reads them, too
	open map[[2]string]int
}

func newKeptFiles() *keptFiles { return &keptFiles{open: map[[2]string]int{}} }

// peakFile can be reset by writing to it.
const peakFile = "memory.max_usage_in_bytes"

// Begin notes the counters before a command is started.
func (c *Counters) Begin() {
	if fd := c.file("memory", peakFile); fd >= 0 {
		_, err := unix.Pwrite(fd, []byte("0"), 0)
		c.resets = err == nil
	}
	if c.isUnified() {
		c.forgetPeak()
		c.resets = c.memoryPeak != nil
	}
	c.start = c.now()
	c.peak.Store(0)
	c.seen.Store(0)
}

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

// tree returns the directory of the groups by which a controller counts; -1 where
// there is none.
func (c *Counters) tree(controller string) int {
	if tree, ok := c.trees[unified]; ok {
		return tree
	}
	if tree, ok := c.trees[controller]; ok {
		return tree
	}
	return -1
}

// launchers counts what is in the group but belongs to no command: a thread of the agent, and a
// child that waits.
func (c *Counters) launchers() int64 {
	switch {
	case c.whole:
		return c.around
	case c.isUnified():
		return 0
	case c.keeps.Load() != 0:
		return 2
	}
	return 1
}

// CountsCPU reports whether processor time is counted.
func (c *Counters) CountsCPU() bool { return c.has("cpuacct") }

// CPU returns the processor time since the start, 0 if it can't be read.
func (c *Counters) CPU() time.Duration {
	if c.isUnified() {
		now, _, _ := c.processorTime()
		return time.Duration(now - c.start.cpu)
	}
	return time.Duration(c.number("cpuacct", "cpuacct.usage", "") - c.start.cpu)
}

// Refused returns how many forks were refused since the start, and notes how many processes
// there are. One goroutine at a time calls it.
func (c *Counters) Refused() int64 {
	c.peak.Store(max(c.peak.Load(), c.processes()))
	if !c.resets {
		c.seen.Store(max(c.seen.Load(), c.memoryNow()))
	}
	own := c.number("pids", "pids.events", "max") - c.start.refused
	if c.isUnified() && !c.whole {
		own += c.together.of(c) - c.start.refusedTogether
	}
	return own
}

// End adds what was counted since the start to the usage that waits for processes returned.
func (c *Counters) End(u *serve.Usage) {
	c.add(u, c.now())
	if c.whole && c.memoryPeak != nil { // each command's own, unlike a group's
		_ = c.memoryPeak.Close()
		c.memoryPeak = nil
	}
}

// Now is as End while the command runs, and says what it holds. It isn't called after End.
func (c *Counters) Now(now *serve.Now) {
	at := c.now()
	c.add(&now.Usage, at)
	now.Memory, now.Processes = max(0, at.memory-c.start.memory), int(max(0, c.processes()))
	now.PeakMemory, now.PeakProcesses = max(now.PeakMemory, now.Memory), max(now.PeakProcesses, now.Processes)
}

// processes returns how many the group has that are of commands, and threads.
func (c *Counters) processes() int64 { return c.number("pids", "pids.current", "") - c.launchers() }

// add adds what was counted from the start until end.
func (c *Counters) add(u *serve.Usage, end counts) {
	u.Refused, u.OOMKills = end.refused-c.start.refused+end.refusedTogether-c.start.refusedTogether, end.oomKills-c.start.oomKills
	// No wait returned the rest. Only how it is divided is a guess.
	if rest := time.Duration(end.cpu-c.start.cpu) - u.User - u.System; rest > 0 {
		user := min(rest, max(0, time.Duration(end.user-c.start.user)-u.User))
		u.User += user
		u.System += rest - user
	}
	// What an earlier command left in files isn't this one's.
	u.PeakMemory = max(u.PeakMemory, c.mostMemory(end)-c.start.memory)
	u.PeakProcesses = int(max(c.peak.Load(), 1))
	if end.mostProcesses > c.start.mostProcesses {
		u.PeakProcesses = int(end.mostProcesses - c.launchers())
	}
	if c.has("blkio") {
		read, written := end.read-c.start.read, end.written-c.start.written
		u.BytesRead, u.BytesWritten = &read, &written
	}
}

// total adds what the group's processes used since it was made, and hold.
func (c *Counters) total(now *serve.Now) {
	now.Memory, now.Processes = c.memoryNow(), int(c.number("pids", "pids.current", ""))
	all, user := c.number("cpuacct", "cpuacct.usage", ""), c.number("cpuacct", "cpuacct.usage_user", "")
	if c.isUnified() {
		all, user, _ = c.processorTime()
	}
	now.User = time.Duration(min(user, all))
	now.System = time.Duration(all) - now.User
}

// mostMemory returns the peak of memory, where the group's may be that of an
// earlier command only as far as it was seen.
func (c *Counters) mostMemory(end counts) int64 {
	if !c.resets && end.mostMemory == c.start.mostMemory {
		return c.seen.Load()
	}
	return end.mostMemory
}

// number reads a number: the only one of a file, or the sum of those on lines on
// which it follows key. What can't be read is 0.
func (c *Counters) number(controller, file, key string) int64 {
	var buf [2048]byte
	return sum(c.text(buf[:], controller, file), key)
}

func sum(text []byte, key string) (all int64) {
	for line := range bytes.Lines(text) {
		name, value := []byte(nil), bytes.TrimSpace(line)
		if i := bytes.LastIndexByte(value, ' '); i >= 0 {
			name, value = value[:i], value[i+1:]
		}
		if i := bytes.LastIndexByte(name, ' '); i >= 0 {
			name = name[i+1:] // a line of blkio begins with its device
		}
		if string(name) == key {
			number, _ := strconv.ParseInt(string(value), 10, 64)
			all += number
		}
	}
	return all
}

// text reads a file of the group into buf.
func (c *Counters) text(buf []byte, controller, file string) []byte {
	fd := c.file(controller, file)
	if fd < 0 {
		return nil
	}
	n, _ := unix.Pread(fd, buf, 0)
	return buf[:max(n, 0)]
}

// file returns a file of the group; -1 where there is none.
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
	if err == unix.EROFS || err == unix.EACCES { // as in a container: then it can only be read
		fd, err = openIn(tree, c.name+"/"+file, unix.O_RDONLY)
	}
	if err != nil {
		return -1
	}
	c.kept.open[key] = fd
	return fd
}
