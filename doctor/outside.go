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

// The limits of all runners of the corpus together, should one of their own not
// hold.
const (
	attackMemory    = 1 << 30
	attackProcesses = 1024
)

// An attackMachine is this machine, as it is seen from outside of the runners
// that attacks are carried out in: what package attack asks for.
type attackMachine struct {
	trees   cgroup.Hierarchies
	group   string // of all runners
	local   string // the directory of what runners have on disk
	bait    attack.Bait
	before  map[string]string // files that must not change
	users   map[string]users  // by runner
	others  []net.Listener
	around  *world.World // nil: none
	serving sync.WaitGroup
}

// users are those of the machine that a runner has.
type users struct{ first, count int }

// newAttackMachine lays out the bait, and limits the group of all runners of a
// server with these settings, with a world around them or none. Close takes it away.
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
	if err := m.layOut(); err != nil {
		return nil, err
	}
	if disks, err := cgroup.Disks("/usr"); err == nil && len(disks) > 0 && m.trees.LimitsReads() && settings.Disk.Read > 0 {
		m.bait.Reads = strconv.Itoa(settings.Disk.Read + settings.Disk.Read/4)
	}
	return m, m.guard()
}

// layOut makes what attackers look for.
func (m *attackMachine) layOut() error {
	// Where runners have a place of their own, which would show it if it were the machine's.
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
	m.answer(loopback)
	m.bait.Port = strconv.Itoa(loopback.Addr().(*net.TCPAddr).Port)
	m.bait.Abstract = "rockpool-attack-" + rand.Text()
	abstract, err := net.Listen("unix", "@"+m.bait.Abstract)
	if err != nil {
		return err
	}
	m.answer(abstract)
	if m.bait.Hostname, err = os.Hostname(); err != nil {
		return err
	}
	var up unix.Sysinfo_t
	if err := unix.Sysinfo(&up); err != nil {
		return err
	}
	// The kernel counts by hundredths of a second, and a moment's share isn't taken back.
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

// answer takes connections, until close.
func (m *attackMachine) answer(l net.Listener) {
	m.others = append(m.others, l)
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

func (m *attackMachine) close() {
	for _, l := range m.others {
		_ = l.Close()
	}
	m.serving.Wait()
	_ = os.RemoveAll(filepath.Dir(m.bait.Path))
}

// bounds are the files of limits, by controller.
var bounds = []struct {
	controller, v1, v2 string
	all                int64 // of the group of all runners
}{
	{"memory", "memory.limit_in_bytes", "memory.max", attackMemory},
	{"pids", "pids.max", "pids.max", attackProcesses},
}

// guard limits the group of all runners.
func (m *attackMachine) guard() error {
	for _, b := range bounds {
		tree, ok := m.trees.Controller(b.controller)
		if !ok {
			return fmt.Errorf("the kernel shows no cgroup controller %s", b.controller)
		}
		dir, file := filepath.Join(tree.Mount, sandbox.Group(m.group, "")), b.v1
		if tree.V2 {
			file = b.v2
		}
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, file), []byte(strconv.FormatInt(b.all, 10)), 0o644)); err != nil {
			return fmt.Errorf("limit all runners together: %w", err)
		}
	}
	return nil
}

// Limited is of [attack.Outside].
func (m *attackMachine) Limited(runner string) error {
	for _, b := range bounds {
		tree, ok := m.trees.Controller(b.controller)
		if !ok {
			return fmt.Errorf("the kernel shows no cgroup controller %s", b.controller)
		}
		file := b.v1
		if tree.V2 {
			file = b.v2
		}
		all := filepath.Join(tree.Mount, sandbox.Group(m.group, ""))
		if n, err := readLimit(filepath.Join(all, file)); err != nil || n != b.all {
			return fmt.Errorf("%s of all runners is %d, not %d: %w", file, n, b.all, errors.Join(err))
		}
		dir := filepath.Join(all, runner)
		in := dir
		if agent := filepath.Join(dir, cgroup.Agent); tree.V2 && isDir(agent) {
			in = agent // a group with others below has no processes there
		}
		members, err := cgroup.Processes(in)
		if err != nil || len(members) == 0 {
			return fmt.Errorf("nobody is in %s: %w", in, errors.Join(err))
		}
		if n, err := readLimit(filepath.Join(dir, file)); err != nil || n <= 0 || n >= b.all {
			return fmt.Errorf("%s of the runner is %d: %w", file, n, errors.Join(err))
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", members[0]))
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

func readLimit(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// Left is of [attack.Outside].
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
	if link := network.Name(sandbox.Group(m.group, runner)); linked(link) {
		left = append(left, "link "+link)
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	if strings.Contains(string(mounts), runner) {
		left = append(left, "a mount")
	}
	its, known := m.users[runner]
	for other, theirs := range m.users {
		if other != runner && theirs == its && isDir(m.runner(other)) {
			known = false // they go on
		}
	}
	if !known || m.othersHave(its) {
		return left
	}
	paths, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range paths {
		var stat unix.Stat_t
		if unix.Stat(path, &stat) == nil && int(stat.Uid) >= its.first && int(stat.Uid) < its.first+its.count && !dead(path) && !m.anothers(path, runner) {
			left = append(left, "process "+filepath.Base(path))
		}
	}
	return left
}

// othersHave reports whether a runner of another server has these users by now.
func (m *attackMachine) othersHave(its users) bool {
	slot := (its.first - spec.FirstUID) / spec.UIDs
	holder, err := os.Readlink(filepath.Join(uids.Default, strconv.Itoa(slot)))
	return err == nil && !strings.HasPrefix(holder, m.local+"/")
}

// anothers reports whether a process is in the control groups of another runner of this
// server, which may have these users by now.
func (m *attackMachine) anothers(path, runner string) bool {
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

// runner is the directory of a runner's socket.
func (m *attackMachine) runner(id string) string { return filepath.Join(m.local, "runners", id) }

// dead reports whether a process only waits to be reaped.
func dead(path string) bool {
	stat, err := os.ReadFile(filepath.Join(path, "stat"))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// Changed is of [attack.Outside].
func (m *attackMachine) Changed() (changed []string) {
	for path, text := range m.before {
		if now, err := os.ReadFile(path); err != nil || string(now) != text {
			changed = append(changed, path+" was changed")
		}
	}
	beside, _ := os.ReadDir(filepath.Dir(m.bait.Path))
	for _, e := range beside {
		if e.Name() != filepath.Base(m.bait.Path) {
			changed = append(changed, e.Name()+" was made beside the secret")
		}
	}
	return changed
}

func linked(name string) bool {
	_, err := net.InterfaceByName(name)
	return err == nil
}

// Came is of [attack.Outside].
func (m *attackMachine) Came(text string) bool { return m.around.Came(text) }

// Addresses is of [attack.Outside].
func (m *attackMachine) Addresses(runner string) (v4, v6 string) {
	pool := network.Pool{V4: network.DefaultPool4, V6: network.DefaultPool6}
	a, b, err := pool.Addresses((m.users[runner].first - spec.FirstUID) / spec.UIDs)
	if err != nil {
		return "nowhere", "nowhere" // which isn't what is seen of a place that is held off
	}
	return a.String(), b.String()
}

// Garble is of [attack.Outside].
func (m *attackMachine) Garble(ctx context.Context, runner string, bytes []byte) error {
	at := m.runner(runner)
	if outside := filepath.Join(at, "outside"); isDir(outside) {
		at = outside // where an agent with a kernel of its own has it
	}
	return Garble(ctx, at, bytes)
}

// Garble sends bytes to the agent's socket in a directory.
func Garble(ctx context.Context, at string, bytes []byte) error {
	dir, err := os.Open(at)
	if err != nil {
		return err
	}
	defer dir.Close()
	// By the descriptor, since a socket's address holds 108 bytes.
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/agent.sock", dir.Fd()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(500 * time.Millisecond)) // the agent may wait for more
	_, _ = conn.Write(bytes)                                     // or may hang up
	_, _ = conn.Read(make([]byte, 1))
	return nil
}
