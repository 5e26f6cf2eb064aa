// Package task serves as a task of Nomad's, which inherits no descriptor: the agent listens on a
// socket, to which "agent bridge", beside it, connects. Nomad lets every user write to a task's
// directories, including those with secrets, so the agent takes away what user code could use
// against it.
package task

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/confinement"
	"github.com/rockpool/rockpool/agent/cmd/groups"
	"github.com/rockpool/rockpool/agent/cmd/host"
	"github.com/rockpool/rockpool/agent/cmd/namespaces"
	"github.com/rockpool/rockpool/agent/cmd/peer"
)

// ErrNotRoot says that this process isn't root of its task, and can't become it. Then commands would
// run as the agent's own user, and nothing could be kept from them.
var ErrNotRoot = errors.New("it must be root in its task, or have what it takes to become it")

// ErrNoNamespaces says that the machine lets no user namespace be made, without which nothing bounds
// what programs write.
var ErrNoNamespaces = errors.New("it can't make a user namespace: the node forbids it")

// Bounds are what a task of the driver exec has no bound of by itself. Zero: the driver keeps them.
type Bounds struct {
	WorkspaceMiB int // of the workspace and of /tmp, each in memory
	Processes    int // with the agent's threads; kept on version 1 of cgroups only
}

// Serve serves on a socket that it makes. It always returns an error: [ErrNotRoot], for example.
func Serve(socket string, network bool, bounds Bounds, o host.Options) error {
	workspace, err := filepath.Abs(o.Workspace)
	if err != nil {
		return err
	}
	if err := becomeRoot(); err != nil {
		return err
	}
	if os.Geteuid() != 0 && !o.Degraded {
		return ErrNotRoot
	}
	o.Workspace, o.Task = workspace, true
	if bounds.WorkspaceMiB == 0 {
		err = makeWorkspace(workspace)
	}
	if err := errors.Join(err, closeDirectories(workspace, o.Image), protect(workspace)); err != nil {
		return err
	}
	listener, err := listenAt(socket)
	if err != nil {
		return err
	}
	if err := endWhenOrphaned(socket); err != nil {
		return err
	}
	switch {
	case mustNest():
		return nest(namespaces.Machine, listener, network, "--workspace", workspace)
	case bounds.WorkspaceMiB > 0:
		err := nest(namespaces.Directories, listener, true,
			"--workspace-mib", strconv.Itoa(bounds.WorkspaceMiB), "--processes", strconv.Itoa(bounds.Processes))
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) {
			err = fmt.Errorf("%w (%w)", ErrNoNamespaces, err)
		}
		return err
	}
	if o.Image {
		o.Whole = groups.FindWhole()
	}
	if !network {
		return errors.New("--no-network: only root of the machine, as with the driver raw_exec, can make a network namespace; elsewhere it is the driver's setting")
	}
	return host.Serve(peer.OwnUser(listener), o)
}

// becomeRoot makes a task of Nomad's driver exec root. By default such a task is nobody, with the
// capabilities for that.
func becomeRoot() error {
	if os.Geteuid() == 0 || !confinement.Can(unix.CAP_SETUID) || !confinement.Can(unix.CAP_SETGID) {
		return nil
	}
	return errors.Join(syscall.Setgroups(nil), syscall.Setgid(0), syscall.Setuid(0))
}

// makeWorkspace makes the workspace, if it isn't there.
func makeWorkspace(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return nil
	}
	return own(dir, 0o1777)
}

// anonymousVolume is the directory of one on the machine: Docker makes it for a VOLUME of an image.
var anonymousVolume = regexp.MustCompile(`(^|/)[0-9a-f]{64}/_data$`)

// closeDirectories keeps user code from writing to what has no bound: Nomad's directories, where every
// user may write, and the volumes that an image declares, if this is a container.
func closeDirectories(workspace string, container bool) error {
	var dirs []string
	if alloc := os.Getenv("NOMAD_ALLOC_DIR"); alloc != "" {
		dirs = append(dirs, alloc, alloc+"/data", alloc+"/logs", alloc+"/tmp")
	}
	if local := os.Getenv("NOMAD_TASK_DIR"); local != "" {
		dirs = append(dirs, local)
	}
	var failed []error
	for _, dir := range dirs {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() && dir != workspace {
			failed = append(failed, closeTo(dir, 0o755))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if container && len(fields) > 4 && anonymousVolume.MatchString(fields[3]) {
			failed = append(failed, closeTo(unescaped.Replace(fields[4]), 0o700))
		}
	}
	return errors.Join(append(failed, err)...)
}

// unescaped is a path as mountinfo writes it (proc_pid_mountinfo(5)).
var unescaped = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// closeTo gives a directory to the agent's user, with this mode. An image may have put a link in its place: that
// isn't followed.
func closeTo(dir string, mode uint32) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil {
		defer func() { _ = unix.Close(fd) }()
		if err = unix.Fchown(fd, 0, 0); err == nil {
			err = unix.Fchmod(fd, mode)
		}
	}
	if err != nil {
		return &os.PathError{Op: "close", Path: dir, Err: err}
	}
	return nil
}

// protect takes from user code the right to replace this program, which the bridge will execute:
// the file, and every directory on the way to it. The workspace may be one of these, with the
// sticky bit.
func protect(workspace string) error {
	if os.Geteuid() != 0 {
		return nil // commands run as the agent's own user: nothing can be kept from them
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	for at := program; ; at = filepath.Dir(at) {
		var stat unix.Stat_t
		if err := unix.Stat(at, &stat); err != nil {
			return &os.PathError{Op: "stat", Path: at, Err: err}
		}
		if at != workspace && changeable(&stat) {
			if err := own(at, stat.Mode&0o7777&^0o022); err != nil {
				return err
			}
		}
		if at == "/" {
			return nil
		}
	}
}

// changeable reports whether the user of commands may replace what is in a directory, or write
// to a file.
func changeable(stat *unix.Stat_t) bool {
	switch {
	case stat.Uid == confinement.User:
		return true // an owner can change the mode
	case stat.Gid == confinement.Group && stat.Mode&0o020 != 0:
		return true
	case stat.Mode&unix.S_IFMT == unix.S_IFDIR && stat.Mode&unix.S_ISVTX != 0:
		return false // entries of others are safe
	default:
		return stat.Mode&0o002 != 0
	}
}
