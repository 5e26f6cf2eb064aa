package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rockpool/rockpool/local/uids"
)

// Chrooted reports whether this process runs in a chroot: its root isn't that of its mount
// namespace.
func Chrooted() bool {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false
	}
	// Only mounts below this process's root are listed. A chroot at a mount point has one at /, like
	// the namespace's root, so the first process of the same namespace is compared, too.
	atRoot := slices.ContainsFunc(strings.Split(string(mounts), "\n"), func(line string) bool {
		fields := strings.Fields(line)
		return len(fields) > 4 && fields[4] == "/"
	})
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
