package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/doctor/attack"
	"github.com/rockpool/rockpool/doctor/attack/world"
	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/local/uids"
)

// Limits of all attacked runners together, in case a runner's own limit doesn't hold.
const (
	attackMemory    = 1 << 30
	attackProcesses = 1024
)

// An attackMachine observes and limits the attacked runners from the outside, on this machine. It implements
// [attack.Outside].
type attackMachine struct {
	trees     cgroup.Hierarchies
	group     string // cgroup of all runners
	local     string // directory with the runners' files
	bait      attack.Bait
	before    map[string]string // contents of files that must not change, by path
	users     map[string]users  // by runner id
	listeners []net.Listener    // baits
	around    *world.World      // simulated network, or nil
	serving   sync.WaitGroup
}

// users is the range of the machine's uids that a runner uses.
type users struct{ first, count int }

// newAttackMachine creates the baits and limits the cgroup of all runners of a server with these
// settings. around may be nil. The caller must call close, which removes the baits.
func newAttackMachine(settings config.Config, around *world.World) (m *attackMachine, err error) {
	m = &attackMachine{group: settings.CgroupParent, local: filepath.Join(settings.Data, "local"), before: map[string]string{}, users: map[string]users{}, around: around}
	if m.trees, err = cgroup.Mounted(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	if err := m.createBaits(); err != nil {
		return nil, err
	}
	if disks, err := cgroup.Disks("/usr"); err == nil && len(disks) > 0 && m.trees.LimitsReads() && settings.Disk.Read > 0 {
		m.bait.Reads = strconv.Itoa(settings.Disk.Read + settings.Disk.Read/4)
	}
	return m, m.guard()
}

func (m *attackMachine) createBaits() error {
	// Runners have their own /tmp: a runner that sees this directory sees the machine's.
	dir, err := os.MkdirTemp("/tmp", "rockpool-attack-")
	if err != nil {
		return err
	}
	m.bait.Path, m.bait.Secret = filepath.Join(dir, "secret"), rand.Text()
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(m.bait.Path, []byte(m.bait.Secret), 0o644)); err != nil {
		return err
	}
	loopback, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	m.accept(loopback)
	m.bait.Port = strconv.Itoa(loopback.Addr().(*net.TCPAddr).Port)
	m.bait.Abstract = "rockpool-attack-" + rand.Text()
	abstract, err := net.Listen("unix", "@"+m.bait.Abstract)
	if err != nil {
		return err
	}
	m.accept(abstract)
	if m.bait.Hostname, err = os.Hostname(); err != nil {
		return err
	}
	var up unix.Sysinfo_t
	if err := unix.Sysinfo(&up); err != nil {
		return err
	}
	// The kernel accounts in hundredths of a second, and doesn't correct a brief excess.
	m.bait.Share = strconv.Itoa(10 + 110*attack.CPUMHz/spec.Inspect(m.trees).CoreMHz)
	m.bait.Uptime = strconv.FormatInt(up.Uptime/2, 10)
	for _, path := range []string{m.bait.Path, "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname"} {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		m.before[path] = string(text)
	}
	return nil
}

func (m *attackMachine) accept(l net.Listener) {
	m.listeners = append(m.listeners, l)
	m.serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	})
}

// close closes the listeners, waits for their goroutines, and removes the baits' directory.
func (m *attackMachine) close() {
	for _, l := range m.listeners {
		_ = l.Close()
	}
	m.serving.Wait()
	_ = os.RemoveAll(filepath.Dir(m.bait.Path))
}

// bounds has the limit file of each controller, for both cgroup versions.
var bounds = []struct {
	controller, v1, v2 string
	all                int64 // limit for the group of all runners
}{
	{"memory", "memory.limit_in_bytes", "memory.max", attackMemory},
	{"pids", "pids.max", "pids.max", attackProcesses},
}

// limitOf returns the directory of a runner's cgroup for a controller, or with "" that of all runners, and
// the file with its limit.
func limitOf(trees cgroup.Hierarchies, group, runner, controller, v1, v2 string) (dir, file string, isV2 bool, err error) {
	tree, ok := trees.Controller(controller)
	if !ok {
		return "", "", false, fmt.Errorf("the kernel shows no cgroup controller %s", controller)
	}
	if file = v1; tree.V2 {
		file = v2
	}
	return filepath.Join(tree.Mount, sandbox.Group(group, runner)), file, tree.V2, nil
}

// members returns the processes of a runner's group.
func members(dir string, isV2 bool) ([]int, error) {
	if agent := filepath.Join(dir, cgroup.Agent); isV2 && isDir(agent) {
		dir = agent // with version 2, a group with subgroups has no processes itself
	}
	return cgroup.Processes(dir)
}

func (m *attackMachine) guard() error {
	for _, b := range bounds {
		dir, file, _, err := limitOf(m.trees, m.group, "", b.controller, b.v1, b.v2)
		if err != nil {
			return err
		}
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, file), []byte(strconv.FormatInt(b.all, 10)), 0o644)); err != nil {
			return fmt.Errorf("limit all runners together: %w", err)
		}
	}
	return nil
}

// Limited implements [attack.Outside].
func (m *attackMachine) Limited(runner string) error {
	for _, b := range bounds {
		all, file, v2, err := limitOf(m.trees, m.group, "", b.controller, b.v1, b.v2)
		if err != nil {
			return err
		}
		if n, err := readLimit(filepath.Join(all, file)); err != nil || n != b.all {
			return fmt.Errorf("%s of all runners is %d, not %d: %w", file, n, b.all, errors.Join(err))
		}
		dir := filepath.Join(all, runner)
		processes, err := members(dir, v2)
		if err != nil || len(processes) == 0 {
			return fmt.Errorf("no process is in %s: %w", dir, errors.Join(err))
		}
		if n, err := readLimit(filepath.Join(dir, file)); err != nil || n <= 0 || n >= b.all {
			return fmt.Errorf("%s of the runner is %d: %w", file, n, errors.Join(err))
		}
		// The runner's uids are read while it lives: Left looks for its processes by uid later.
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", processes[0]))
		if err != nil {
			return err
		}
		var inside int
		var its users
		if _, err := fmt.Sscan(string(text), &inside, &its.first, &its.count); err != nil {
			return fmt.Errorf("users of the runner: %w", err)
		}
		m.users[runner] = its
	}
	return nil
}

// readLimit reads a cgroup limit. It returns an error for "max", which means no limit in cgroup
// version 2.
func readLimit(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// Left implements [attack.Outside].
func (m *attackMachine) Left(runner string) (left []string) {
	for _, tree := range m.trees {
		if dir := filepath.Join(tree.Mount, sandbox.Group(m.group, runner)); isDir(dir) {
			left = append(left, "control group "+dir)
		}
	}
	for _, kind := range []string{"runners", "state"} {
		if dir := filepath.Join(m.local, kind, runner); isDir(dir) {
			left = append(left, "directory "+dir)
		}
	}
	link := network.Name(sandbox.Group(m.group, runner))
	if _, err := net.InterfaceByName(link); err == nil {
		left = append(left, "link "+link)
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	if strings.Contains(string(mounts), runner) {
		left = append(left, "a mount")
	}
	// The remaining checks find processes by uid. A uid proves nothing if another runner has it
	// now.
	its, known := m.users[runner]
	for other, theirs := range m.users {
		if other != runner && theirs == its && isDir(m.runner(other)) {
			known = false // that runner still uses them
		}
	}
	if !known || m.reused(its) {
		return left
	}
	paths, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range paths {
		var stat unix.Stat_t
		if unix.Stat(path, &stat) == nil && int(stat.Uid) >= its.first && int(stat.Uid) < its.first+its.count && !dead(path) && !m.ofAnotherRunner(path, runner) {
			left = append(left, "process "+filepath.Base(path))
		}
	}
	return left
}

// reused reports whether a runner of another server uses these uids now.
func (m *attackMachine) reused(its users) bool {
	slot := (its.first - spec.FirstUID) / spec.UIDs
	holder, err := os.Readlink(filepath.Join(uids.Default, strconv.Itoa(slot)))
	return err == nil && !strings.HasPrefix(holder, m.local+"/")
}

// ofAnotherRunner reports whether a process is in the cgroup of another runner of this server,
// which may use the same uids now.
func (m *attackMachine) ofAnotherRunner(path, runner string) bool {
	text, err := os.ReadFile(filepath.Join(path, "cgroup"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		_, below, found := strings.Cut(line, "/"+strings.Trim(m.group, "/")+"/")
		other, _, _ := strings.Cut(strings.TrimSpace(below), "/")
		if found && other != runner && isDir(m.runner(other)) {
			return true
		}
	}
	return false
}

func (m *attackMachine) runner(id string) string { return filepath.Join(m.local, "runners", id) }

// dead reports whether a process has ended and only waits to be reaped.
func dead(path string) bool {
	stat, err := os.ReadFile(filepath.Join(path, "stat"))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// Changed implements [attack.Outside].
func (m *attackMachine) Changed() (changed []string) {
	for path, text := range m.before {
		if now, err := os.ReadFile(path); err != nil || string(now) != text {
			changed = append(changed, path+" was changed")
		}
	}
	entries, _ := os.ReadDir(filepath.Dir(m.bait.Path))
	for _, e := range entries {
		if e.Name() != filepath.Base(m.bait.Path) {
			changed = append(changed, e.Name()+" was created next to the secret")
		}
	}
	return changed
}

// Received implements [attack.Outside].
func (m *attackMachine) Received(text string) bool { return m.around.Received(text) }

// Addresses implements [attack.Outside].
func (m *attackMachine) Addresses(runner string) (v4, v6 string) {
	pool := network.Pool{V4: network.DefaultPool4, V6: network.DefaultPool6}
	a, b, err := pool.Addresses((m.users[runner].first - spec.FirstUID) / spec.UIDs)
	if err != nil {
		return "nowhere", "nowhere" // an attack on it gives another output than on a blocked address
	}
	return a.String(), b.String()
}

// Garble implements [attack.Outside].
func (m *attackMachine) Garble(ctx context.Context, runner string, bytes []byte) error {
	at := m.runner(runner)
	if outside := filepath.Join(at, "outside"); isDir(outside) {
		at = outside // the socket of an agent with its own kernel (gVisor)
	}
	return Garble(ctx, at, bytes)
}

// Garble sends bytes to the agent's socket in the directory at, and reads one byte. It ignores the response.
func Garble(ctx context.Context, at string, bytes []byte) error {
	dir, err := os.Open(at)
	if err != nil {
		return err
	}
	defer dir.Close()
	// Through the descriptor, since a socket's address is limited to 108 bytes.
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/agent.sock", dir.Fd()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(500 * time.Millisecond)) // the agent may wait for more bytes
	_, _ = conn.Write(bytes)                                     // or close the connection
	_, _ = conn.Read(make([]byte, 1))
	return nil
}
