package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/proc"
	"github.com/rockpool/rockpool/local/host"
	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/uids"
	"github.com/rockpool/rockpool/runtime/health"
)

type kernelPart struct {
	name   string
	try    func(ctx context.Context) (remark string, err error)
	needed bool // whether sandboxes need it; otherwise only another feature does
	advice string
	roots  bool // only root can test it; without root, sandboxes don't need it or their own test covers it
}

// kernelParts tests each kernel feature on its own in a temporary process or thread, so that the
// findings say why a sandbox can't be created. One finding lists all features that work.
func kernelParts(ctx context.Context, group string) (found []health.Finding) {
	container := "; if this is a container, start it with --privileged and --cgroupns=private"
	if host.Chrooted() {
		container = "; this is a chroot, in which the kernel forbids user namespaces: start rockpool outside, or in a container, which uses pivot_root"
	}
	all := []kernelPart{
		{"user namespaces", isolated(0), true, "allow user namespaces: sysctl user.max_user_namespaces=65536 (and kernel.apparmor_restrict_unprivileged_userns=0)" + container, false},
		{"pid, mount, network, ipc, uts and cgroup namespaces", isolated(unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP), true, "use a kernel with all kinds of namespaces" + container, false},
		{"mounts", inMounts(func(dir string) error { return unix.Mount("probe", dir, "tmpfs", unix.MS_NOSUID, "size=64k") }), true, "give this program CAP_SYS_ADMIN" + container, true},
		{"overlays", inMounts(overlay), false, "load the kernel module overlay; images with more than one layer may need it", true},
		{"idmapped mounts", inMounts(idmapped), false, "use Linux 5.12 or later; without it, container images don't work", true},
		{"a process limit", func(ctx context.Context) (string, error) { return limitProcesses(ctx, group) }, true, "let root create control groups with the controller pids" + container, true},
		{"seccomp", seccomp, true, "use a kernel with CONFIG_SECCOMP_FILTER", false},
	}
	var works []string
	for _, p := range all {
		if p.roots && !uids.Root() {
			continue
		}
		remark, err := p.try(ctx)
		switch {
		case err == nil:
			works = append(works, p.name+remark)
		case p.needed:
			found = append(found, health.Failure("kernel parts", p.advice, "%s is unavailable: %v", p.name, err))
		default:
			found = append(found, health.Warning("kernel parts", p.advice, "%s is unavailable: %v", p.name, err))
		}
	}
	return append([]health.Finding{health.Fine("kernel parts", "work: %s", strings.Join(works, ", "))}, append(found, extras()...)...)
}

// extras returns findings about features that sandboxes don't need.
func extras() []health.Finding {
	var found []health.Finding
	if version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); errno == 0 {
		found = append(found, health.Fine("landlock", "version %d; sandboxes don't need it", version))
	} else {
		found = append(found, health.Fine("landlock", "unavailable; sandboxes don't need it"))
	}
	if fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER); err == nil {
		_ = unix.Close(fd)
		found = append(found, health.Fine("packet filters", "available; network access of programs needs them"))
	} else {
		found = append(found, health.Warning("packet filters", "load the kernel module nfnetlink; without it, programs get no network access", "unavailable: %v", err))
	}
	return found
}

// isolated returns a test that runs a process in a user namespace and the given other namespaces.
func isolated(kinds uintptr) func(ctx context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		cmd := exec.CommandContext(ctx, "/bin/true")
		one := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | kinds, UidMappings: one, GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}}
		return "", cmd.Run()
	}
}

// inMounts returns a test that calls try in a mount namespace, which ends with its thread. try gets
// a temporary directory.
func inMounts(try func(dir string) error) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		dir, err := os.MkdirTemp("", "rockpool-probe-")
		if err != nil {
			return "", err
		}
		defer os.RemoveAll(dir)
		proc.OnThread(func() {
			if err = unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
				return
			}
			// The namespace's mounts are still shared with the machine's: without this, the machine
			// would get the test's mount too.
			if err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return
			}
			err = try(dir)
		})
		return "", err
	}
}

func overlay(dir string) error {
	if err := unix.Mount("probe", dir, "tmpfs", 0, "size=256k"); err != nil {
		return err
	}
	for _, name := range []string{"lower", "upper", "work", "all"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			return err
		}
	}
	if err := unix.Mount("probe", dir+"/all", "overlay", 0, fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", dir)); err != nil {
		return err
	}
	return os.WriteFile(dir+"/all/file", nil, 0o600)
}

// idmapped creates an idmapped mount, which shows a directory with another owner.
func idmapped(dir string) error {
	if err := unix.Mount("probe", dir, "tmpfs", 0, "size=64k"); err != nil {
		return err
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(tree) }()
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 1_000_000_000, Size: 1 << 16}}
	feed, fed, err := os.Pipe()
	if err != nil {
		return err
	}
	defer feed.Close()
	// The kernel takes the mapping from a user namespace. This process keeps one alive until its
	// input ends.
	process, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "read x"}, &os.ProcAttr{
		Files: []*os.File{feed}, Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids},
	})
	if err != nil {
		return errors.Join(err, fed.Close())
	}
	users, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", process.Pid))
	if err == nil {
		err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(users.Fd())})
		_ = users.Close()
	}
	_ = fed.Close() // ends the process
	_, waited := process.Wait()
	return errors.Join(err, waited)
}

// limitProcesses moves a process into a cgroup with at most three processes, reads both back, and
// checks that the kernel refuses a fourth process.
func limitProcesses(ctx context.Context, parent string) (remark string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	trees, err := cgroup.Mounted()
	if err != nil {
		return "", err
	}
	tree, ok := trees.Controller("pids")
	if !ok {
		return "", errors.New("the kernel shows no controller pids")
	}
	group := sandbox.Group(parent, "probe-"+strconv.Itoa(os.Getpid()))
	dir := filepath.Join(tree.Mount, group)
	defer func() {
		err = errors.Join(err, trees.Remove(context.WithoutCancel(ctx), group))
		trees.Prune(filepath.Dir(group))
	}()
	for at := tree.Mount; at != dir; {
		if tree.V2 { // a cgroup has the controllers that those above enable
			if err := os.WriteFile(filepath.Join(at, "cgroup.subtree_control"), []byte("+pids"), 0); err != nil {
				return "", err
			}
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(dir, at+"/"), "/")
		at = filepath.Join(at, name)
		if err := os.Mkdir(at, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	const most = "3"
	if err := os.WriteFile(filepath.Join(dir, "pids.max"), []byte(most), 0o644); err != nil {
		return "", err
	}
	if text, err := os.ReadFile(filepath.Join(dir, "pids.max")); err != nil || strings.TrimSpace(string(text)) != most {
		return "", fmt.Errorf("pids.max is %q after it was set to %s: %w", text, most, errors.Join(err))
	}
	// The shell waits for a line, so that it forks only after it has joined the group.
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", "read x; for i in 1 2 3 4 5 6; do sleep 0.2 & done; wait")
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	joined := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644)
	members, _ := cgroup.Processes(dir)
	if joined == nil && len(members) != 1 {
		joined = fmt.Errorf("%d processes are in the group after one joined", len(members))
	}
	if joined == nil {
		_, _ = io.WriteString(in, "\n")
	}
	_ = in.Close() // now the shell forks, or ends
	_ = cmd.Wait() // an error is expected: the shell can't fork
	if joined != nil {
		return "", joined
	}
	events, err := os.ReadFile(filepath.Join(dir, "pids.events"))
	if err == nil && strings.TrimSpace(string(events)) == "max 0" {
		err = errors.New("a process exceeded the limit")
	}
	return "", err
}

// seccomp checks that the kernel has the filter actions that sandboxes use.
func seccomp(context.Context) (string, error) {
	actions, err := os.ReadFile("/proc/sys/kernel/seccomp/actions_avail")
	if err != nil {
		return "", err
	}
	for _, action := range []string{"kill_process", "errno", "allow"} {
		if !strings.Contains(string(actions), action) {
			return "", fmt.Errorf("the kernel lacks the seccomp action %s", action)
		}
	}
	return "", nil
}
