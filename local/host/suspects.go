package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/uids"
)

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
