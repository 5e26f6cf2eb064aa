package main

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
	"github.com/rockpool/rockpool/agent/cmd/executor"
	"github.com/rockpool/rockpool/agent/cmd/groups"
	"github.com/rockpool/rockpool/agent/cmd/namespaces"
)

// errNotRoot says that this process isn't root of its task, and can't become root. Then commands
// would run as the agent's own user, and the agent couldn't protect anything from them.
var errNotRoot = errors.New("the agent must be root in its task, or have the capabilities to become root")

// errNoNamespaces says that the machine doesn't allow a user namespace. Without one there is no
// limit on the files that programs write.
var errNoNamespaces = errors.New("the agent can't create a user namespace: the node forbids it")

// serveTask runs the agent as a Nomad task. A task inherits no descriptor, so the agent listens on a
// socket, to which "agent bridge" in the same task connects. User code can't connect to that socket,
// read the task's secrets or replace the agent's program, although Nomad makes a task's directories
// writable for every user.
//
// serveTask always returns an error. [errNotRoot] and [errNoNamespaces] mean that it couldn't start.
//
// If mib isn't 0, it sets limits that the driver exec doesn't enforce itself. The workspace is in memory and
// has this size in MiB; /tmp has twice as much. In version 1 of cgroups, processes limits the number of
// processes, including the agent's threads.
func serveTask(socket string, network bool, mib, processes int, o executor.Options) error {
	workspace, err := filepath.Abs(o.Workspace)
	if err != nil {
		return err
	}
	if err := becomeRoot(); err != nil {
		return err
	}
	if os.Geteuid() != 0 && !o.Degraded {
		return errNotRoot
	}
	o.Workspace, o.Task = workspace, true
	if mib == 0 {
		err = os.MkdirAll(workspace, 0o755)
	}
	if err := errors.Join(err, closeDirectories(workspace, o.Image), protect(workspace)); err != nil {
		return err
	}
	// The directories are closed to user code before the socket exists, and before a command runs.
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
	case mib > 0:
		err := nest(namespaces.Directories, listener, true,
			"--workspace-mib", strconv.Itoa(mib), "--processes", strconv.Itoa(processes))
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) {
			err = fmt.Errorf("%w (%w)", errNoNamespaces, err)
		}
		return err
	}
	if o.Image {
		o.RunnerGroup = groups.FindRunnerGroup()
	}
	if !network {
		return errors.New("--no-network needs root of the machine, as in the driver raw_exec, to create a network namespace; with other drivers use the driver's own setting")
	}
	return executor.Serve(executor.OwnUser(listener), o)
}

// becomeRoot makes a task of Nomad's driver exec root. Such a task runs as nobody by default, with
// the capabilities for that.
func becomeRoot() error {
	if os.Geteuid() == 0 || !confinement.Can(unix.CAP_SETUID) || !confinement.Can(unix.CAP_SETGID) {
		return nil
	}
	return errors.Join(syscall.Setgroups(nil), syscall.Setgid(0), syscall.Setuid(0))
}

// anonymousVolume matches a directory of the machine that Docker creates for a VOLUME of an image.
var anonymousVolume = regexp.MustCompile(`(^|/)[0-9a-f]{64}/_data$`)

// closeDirectories keeps user code from writing to directories without a limit: Nomad's, where
// every user may write, and, in a container, the volumes that the image declares.
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

// unescaped decodes a path of mountinfo (proc_pid_mountinfo(5)).
var unescaped = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// closeTo changes a directory's owner to the agent's user, and its mode. It doesn't follow links,
// since an image may have one in this place.
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

// protect prevents that user code replaces this program, which the bridge executes later. It
// protects the file and every directory above it. The workspace, which belongs to user code, must
// not be one of these directories.
func protect(workspace string) error {
	if os.Geteuid() != 0 {
		return nil // commands run as the agent's user: nothing can be protected from them
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
		if at == workspace {
			return fmt.Errorf("%s must not contain the agent's program %s: use another --workspace", workspace, program)
		}
		if changeable(&stat) {
			if err := own(at, stat.Mode&0o7777&^0o022); err != nil {
				return err
			}
		}
		if at == "/" {
			return nil
		}
	}
}

// changeable reports whether the user of commands may write to a file, or replace entries of a
// directory.
func changeable(stat *unix.Stat_t) bool {
	switch {
	case stat.Uid == confinement.User:
		return true // an owner can change the mode
	case stat.Gid == confinement.Group && stat.Mode&0o020 != 0:
		return true
	case stat.Mode&unix.S_IFMT == unix.S_IFDIR && stat.Mode&unix.S_ISVTX != 0:
		return false // the sticky bit protects entries of other users
	default:
		return stat.Mode&0o002 != 0
	}
}
