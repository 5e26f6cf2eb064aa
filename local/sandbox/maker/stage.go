package maker

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/proc"
	"github.com/rockpool/rockpool/local/sandbox/spec"
)

// Paths of root directories in a stage, as seen from its own root.
const (
	hostRoot  = "/root"  // the shared root directory of sandboxes without an image
	imageRoot = "/image" // root directory of an image, for one sandbox at a time
	viewDir   = "/views" // the files of package spec's views
)

// stageMount is where a stage builds its root, in its own mount namespace.
const stageMount = "/run/rockpool"

type job struct {
	root  *os.File // an image's root: a detached mount, nil for the shared root
	extra []bind   // further mounts for this sandbox
	clone func(root string) (pid int, err error)
	free  func() // called once, also after an error
	done  chan<- cloneResult
}

// cloneResult is a process that has executed the agent, made another process, or ended. The maker must
// reap it.
type cloneResult struct {
	pid int // 0 if none was made
	err error
}

// A bind is a detached mount, and its path in a sandbox.
type bind struct {
	tree *os.File
	at   string
}

func (b bind) close() { _ = b.tree.Close() }

// openBind returns a detached copy of the machine's directory or file, with the options of a spec's
// mount.
func openBind(m specs.Mount) (bind, error) {
	o := parseOptions(m.Options)
	if o.data != "" {
		return bind{}, fmt.Errorf("unknown options of the mount %s: %s", m.Destination, o.data)
	}
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC)
	if o.rbind {
		flags |= unix.AT_RECURSIVE
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, m.Source, flags)
	if err != nil {
		return bind{}, &os.PathError{Op: "open_tree", Path: m.Source, Err: err}
	}
	b := bind{os.NewFile(uintptr(fd), m.Source), m.Destination}
	err = setAttr(fd, o.attr, 0)
	if err == nil && o.recursive != 0 {
		err = setAttr(fd, o.recursive, unix.AT_RECURSIVE)
	}
	if err != nil {
		b.close()
		return bind{}, fmt.Errorf("set the options of %s: %w", m.Destination, err)
	}
	return b, nil
}

// setAttr sets attributes of a detached mount, or with AT_RECURSIVE of all mounts in it.
func setAttr(tree int, attr uint64, flags uint) error {
	if attr == 0 {
		return nil
	}
	return unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|flags, &unix.MountAttr{Attr_set: attr})
}

// attach mounts a detached mount at a path in root. Symbolic links are resolved within root.
func attach(tree *os.File, root, at string) error {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: root, Err: err}
	}
	defer func() { _ = unix.Close(dir) }()
	target, err := unix.Openat2(dir, at, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return &os.PathError{Op: "openat2", Path: path.Join(root, at), Err: err}
	}
	defer func() { _ = unix.Close(target) }()
	if err := unix.MoveMount(int(tree.Fd()), "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "move_mount", Path: path.Join(root, at), Err: err}
	}
	return nil
}

// startStage starts a stage's thread around a root directory. Its thread has its own mounts: those that
// all sandboxes share, and /proc, because the kernel lets a sandbox mount /proc only where one is visible.
// Of the machine it contains only what sandboxes may see. First processes are cloned from this thread. The
// thread ends when jobs is closed, and its mounts with it.
func startStage(root string, shared []specs.Mount, device specs.Mount, jobs chan job) error {
	ready := make(chan error)
	proc.StartThread(func() bool {
		err := buildStage(root, shared, device)
		ready <- err
		if err != nil {
			return false
		}
		for j := range jobs {
			pid, err := j.do()
			j.free()
			j.done <- cloneResult{pid, err}
		}
		return false
	})
	return <-ready
}

// buildStage makes the stage's mounts, and leaves the machine's. It changes the calling thread.
func buildStage(root string, shared []specs.Mount, device specs.Mount) error {
	binds := []bind{}
	defer func() {
		for _, b := range binds {
			b.close()
		}
	}()
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	// In shared mounts, the stage's mounts would appear on the machine too.
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, m := range append([]specs.Mount{
		{Source: root, Destination: hostRoot, Options: []string{"bind", "ro", "nosuid", "nodev"}},
		{Source: "/proc", Destination: "/proc", Options: []string{"rbind"}},
		{Source: spec.Views, Destination: viewDir, Options: []string{"bind", "ro", "nosuid", "nodev", "noexec"}},
	}, under(hostRoot, shared)...) {
		b, err := openBind(m)
		if err != nil {
			return err
		}
		binds = append(binds, b)
	}
	devices, err := openDevices()
	if err != nil {
		return err
	}
	defer func() {
		for _, b := range devices {
			b.close()
		}
	}()
	if err := unix.Mount("stage", stageMount, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=64k"); err != nil {
		return fmt.Errorf("mount the stage: %w", err)
	}
	for _, at := range []string{hostRoot, imageRoot, viewDir, "/proc"} {
		if err := os.Mkdir(stageMount+at, 0o755); err != nil {
			return err
		}
	}
	for _, b := range binds {
		if err := attach(b.tree, stageMount, b.at); err != nil {
			return err
		}
	}
	if err := buildDevices(stageMount+path.Join(hostRoot, device.Destination), device, devices); err != nil {
		return err
	}
	if err := unix.Chdir(stageMount); err != nil {
		return err
	}
	// This puts the old root on top of the new one, so that the unmount removes it; see
	// pivot_root(2).
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("leave the machine's mounts: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the machine's mounts: %w", err)
	}
	return unix.Chdir("/")
}

// under returns the mounts with their destinations moved below root.
func under(root string, all []specs.Mount) (moved []specs.Mount) {
	for _, m := range all {
		m.Destination = path.Join(root, m.Destination)
		moved = append(moved, m)
	}
	return moved
}

var deviceNames = []string{"null", "zero", "full", "random", "urandom", "tty"}

// openDevices opens the devices of deviceNames; the caller closes them, also after an error.
func openDevices() (all []bind, err error) {
	for _, name := range deviceNames {
		b, err := openBind(specs.Mount{Source: "/dev/" + name, Destination: name, Options: []string{"bind", "nosuid", "noexec"}})
		if err != nil {
			return all, err
		}
		all = append(all, b)
	}
	return all, nil
}

// buildDevices mounts the /dev that sandboxes share, read-only so that none can change it.
func buildDevices(at string, m specs.Mount, devices []bind) error {
	o := parseOptions(m.Options)
	if err := unix.Mount(m.Source, at, m.Type, o.flags, o.data); err != nil {
		return fmt.Errorf("mount /dev: %w", err)
	}
	for link, to := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx",
	} {
		if err := os.Symlink(to, filepath.Join(at, link)); err != nil {
			return err
		}
	}
	for _, name := range []string{"pts", "shm"} {
		if err := os.Mkdir(filepath.Join(at, name), 0o755); err != nil {
			return err
		}
	}
	for _, b := range devices {
		if err := os.WriteFile(filepath.Join(at, b.at), nil, 0o644); err != nil {
			return err
		}
		if err := attach(b.tree, at, b.at); err != nil {
			return err
		}
	}
	return unix.MountSetattr(unix.AT_FDCWD, at, 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}

// do mounts what a job needs, clones its first process, and unmounts everything again.
func (j job) do() (pid int, err error) {
	root := hostRoot
	if j.root != nil {
		root = imageRoot
		if err := attach(j.root, "/", root); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, unmount(root)) }()
		if err := copyDevices(); err != nil {
			return 0, err
		}
	}
	for _, b := range j.extra {
		if err := attach(b.tree, root, b.at); err != nil {
			return 0, err
		}
		if j.root == nil { // else it is unmounted with the image's root
			defer func() { err = errors.Join(err, unmount(path.Join(root, b.at))) }()
		}
	}
	return j.clone(root)
}

// copyDevices mounts the shared /dev in an image's root, too.
func copyDevices() error {
	b, err := openBind(specs.Mount{Source: hostRoot + "/dev", Destination: "/dev", Options: []string{"rbind"}})
	if err != nil {
		return err
	}
	defer b.close()
	return attach(b.tree, imageRoot, b.at)
}

// ErrUnclean means that a mount of one sandbox remains where others would get it. The maker must
// not make another sandbox.
var ErrUnclean = errors.New("a mount of one sandbox is left and would be visible in others")

// unmount detaches a mount. Its error is an ErrUnclean.
func unmount(at string) error {
	if err := unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("%w: unmount %s: %w", ErrUnclean, at, err)
	}
	return nil
}

type mountOptions struct {
	flags     uintptr // of mount(2)
	data      string  // for the file system
	attr      uint64  // of mount_setattr(2), for this mount only
	recursive uint64  // of mount_setattr(2), for this mount and those below
	rbind     bool
}

// options has the mount options that a spec can have; others are passed to the file system.
var options = map[string]mountOptions{
	"ro":      {flags: unix.MS_RDONLY, attr: unix.MOUNT_ATTR_RDONLY},
	"nosuid":  {flags: unix.MS_NOSUID, attr: unix.MOUNT_ATTR_NOSUID},
	"nodev":   {flags: unix.MS_NODEV, attr: unix.MOUNT_ATTR_NODEV},
	"noexec":  {flags: unix.MS_NOEXEC, attr: unix.MOUNT_ATTR_NOEXEC},
	"rro":     {recursive: unix.MOUNT_ATTR_RDONLY},
	"rnosuid": {recursive: unix.MOUNT_ATTR_NOSUID},
	"rnodev":  {recursive: unix.MOUNT_ATTR_NODEV},
	"bind":    {flags: unix.MS_BIND},
	"rbind":   {flags: unix.MS_BIND, rbind: true},
	"rw":      {},
}

func parseOptions(all []string) (o mountOptions) {
	var data []string
	for _, name := range all {
		known, ok := options[name]
		if !ok {
			data = append(data, name)
			continue
		}
		o.flags |= known.flags
		o.attr |= known.attr
		o.recursive |= known.recursive
		o.rbind = o.rbind || known.rbind
	}
	o.data = strings.Join(data, ",")
	return o
}
