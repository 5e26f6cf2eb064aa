package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/moby/sys/mountinfo"

	"github.com/rockpool/rockpool/local/uids"
)

// Chrooted reports whether this process runs in a chroot: its root isn't that of its mount
// namespace.
func Chrooted() bool {
	mounts, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter("/"))
	if err != nil {
		return false
	}
	// Only mounts below this process's root are listed. A chroot at a mount point has one at /, like
	// the namespace's root, so the first process of the same namespace is compared, too.
	atRoot := len(mounts) > 0
	first, firstErr := os.Readlink("/proc/1/ns/mnt")
	own, ownErr := os.Readlink("/proc/self/ns/mnt")
	if atRoot && (firstErr != nil || ownErr != nil || first != own) {
		return false
	}
	there, thereErr := os.Stat("/proc/1/root/")
	here, hereErr := os.Stat("/")
	return !atRoot || thereErr == nil && hereErr == nil && !os.SameFile(there, here)
}

// Missing returns what is known to be missing for sandboxes, each with what to do, without making
// one.
func (h *Host) Missing() []error {
	var all []error
	lacks := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	rootless := !uids.Root() && h.Direct != nil
	if lacking := h.lacking(); rootless && lacking != "" && !h.config.MissingLimits {
		lacks("%s: start the server with systemd-run --user --scope -p Delegate=yes, or as root, or give it a helper with --sandbox-helper; or accept it with --accept-missing-limits", lacking)
	}
	if text, err := os.ReadFile("/proc/sys/user/max_user_namespaces"); err != nil || strings.TrimSpace(string(text)) == "0" {
		lacks("user namespaces are disabled: set the sysctl user.max_user_namespaces to more than 0")
	}
	if Chrooted() {
		lacks("the server runs in a chroot, in which the kernel forbids user namespaces (operation not permitted): start it outside, or in a container, which changes the root directory with pivot_root")
	}
	for _, kind := range []string{"user", "pid", "mnt", "ipc", "uts", "net", "cgroup", "time"} {
		if _, err := os.Stat("/proc/self/ns/" + kind); err != nil {
			lacks("the kernel has no %s namespaces: use Linux 5.6 or later with these namespaces enabled", kind)
		}
	}
	controllers := []string{"memory", "pids", "cpu"}
	if h.Direct == nil || rootless {
		controllers = nil // only the helper can test them; it does when Check makes a sandbox
	}
	for _, controller := range controllers {
		if err := h.tryController(controller); errors.Is(err, errNoController) {
			lacks("the kernel has no cgroup controller %s; %s", controller, bootAdvice(controller))
		} else if err != nil {
			lacks("limits of %s are unavailable: %w; mount the cgroup controller so that root can write to it (a container needs --privileged and --cgroupns=private)", controller, err)
		}
	}
	if h.unready != nil {
		all = append(all, h.unready)
	}
	return all
}

// errNoController says that no mounted tree has a controller.
var errNoController = errors.New("the kernel has no such cgroup controller")

// bootAdvice says how to get a controller. Some distributions start the kernel without memory's, above all
// for ARM.
func bootAdvice(controller string) string {
	if controller == "memory" {
		return "add cgroup_enable=memory cgroup_memory=1 to the kernel's command line and restart the machine (Raspberry Pi OS: the line in /boot/firmware/cmdline.txt; Debian: GRUB_CMDLINE_LINUX in /etc/default/grub, then update-grub)"
	}
	return "use a kernel with it, or mount its tree (a container needs --privileged and --cgroupns=private)"
}

// checkGroup is the cgroup that every server makes for a test below its parent. If a server is
// killed meanwhile, the next one removes it.
const checkGroup = "check"

func (h *Host) tryController(name string) error {
	tree, ok := h.Trees.Controller(name)
	if !ok {
		return errNoController
	}
	group := path.Join("/", h.config.CgroupParent, checkGroup)
	if err := tree.Prepare(group); err != nil {
		return err
	}
	err := os.Remove(filepath.Join(tree.Mount, group))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another server that tests has removed it
	}
	return err
}

// fewestFiles is the least limit of open files. A sandbox's first process gets a descriptor above 512.
const fewestFiles = 1024

// Suspects returns why a sandbox couldn't be made, as far as the machine shows it: one error each, with what
// to do. Call it only after a failed attempt: a machine can work in spite of one of these.
func (h *Host) Suspects() (all []error) {
	found := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	if h.Direct == nil { // the helper has its own environment
		return nil
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil && files.Cur < fewestFiles {
		found("the server can open only %d files, and needs %d; raise the limit before you start it: ulimit -n 65536, or LimitNOFILE= in its unit", files.Cur, fewestFiles)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(h.config.Dir, &disk); err == nil && disk.Flags&unix.ST_NOEXEC != 0 {
		found("%s is mounted noexec, but the server executes programs there; choose a directory with --data on another file system", h.config.Dir)
	}
	if text, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		if covered := coveredProc(string(text)); len(covered) > 0 {
			found("mounts cover parts of /proc, so the kernel mounts no /proc in a sandbox: %s; unmount them, or start the container with --privileged", strings.Join(covered, ", "))
		}
	}
	if err := h.tryUsers(); errors.Is(err, unix.EPERM) {
		found("the kernel refuses to make a user namespace: the server runs in a chroot, or seccomp, AppArmor or another policy forbids them; start it outside the chroot, or allow user namespaces")
	}
	if text, err := os.ReadFile("/proc/self/status"); err == nil && uids.Root() {
		if lacks := lackingCapabilities(string(text)); len(lacks) > 0 {
			found("the server is root without the capabilities %s; give it all capabilities (a container needs --privileged, a unit no CapabilityBoundingSet=)", strings.Join(lacks, ", "))
		}
	}
	return all
}

// coveredProc returns the mounts below /proc, of a mountinfo (proc(5)), except those that the kernel allows:
// they are on directories that are always empty.
func coveredProc(mounts string) (covered []string) {
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) > 4 && strings.HasPrefix(fields[4], "/proc/") && fields[4] != "/proc/sys/fs/binfmt_misc" && fields[4] != "/proc/fs/nfsd" {
			covered = append(covered, fields[4])
		}
	}
	if len(covered) > 5 {
		covered = append(covered[:5], "…")
	}
	return covered
}

// tryUsers makes a user namespace, which ends immediately.
func (h *Host) tryUsers() error {
	cmd := exec.Command(h.Direct.Path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}
	if err := cmd.Start(); err != nil {
		return err
	}
	_, _ = cmd.Process.Kill(), cmd.Wait()
	return nil
}

// lackingCapabilities returns the names of the capabilities that sandboxes need and a process lacks, by its
// /proc/PID/status.
func lackingCapabilities(status string) (names []string) {
	_, rest, _ := strings.Cut(status, "\nCapEff:")
	text, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	effective, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		return nil
	}
	for _, needed := range []struct {
		name string
		bit  uint
	}{
		{"CAP_CHOWN", unix.CAP_CHOWN}, {"CAP_DAC_OVERRIDE", unix.CAP_DAC_OVERRIDE}, {"CAP_FOWNER", unix.CAP_FOWNER},
		{"CAP_KILL", unix.CAP_KILL}, {"CAP_SETGID", unix.CAP_SETGID}, {"CAP_SETUID", unix.CAP_SETUID}, {"CAP_SETPCAP", unix.CAP_SETPCAP},
		{"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN},
	} {
		if effective&(1<<needed.bit) == 0 {
			names = append(names, needed.name)
		}
	}
	return names
}
