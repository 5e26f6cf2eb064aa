package maker

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Where a stage has what the first processes are cloned with, seen from its own root.
const (
	hostRoot  = "/root"  // the directory that sandboxes with the machine's programs share
	imageRoot = "/image" // that of an image, for one sandbox at a time
)

// stageMount is where a stage is built, in its own mount namespace.
const stageMount = "/run/rockpool"

// A stage is a thread with mounts of its own: those that sandboxes share, and /proc,
// without which the kernel lets no sandbox mount one. Nothing of the machine's is in it
// but what is shown inside sandboxes. Processes are cloned from it.
type stage struct {
	jobs chan job
}

// A job is what a stage does for one sandbox.
type job struct {
	root  *os.File // an image's root, a detached mount; nil: the shared one
	extra []bind   // more that is mounted for this one
	clone func(root string) (pid int, err error)
	free  func() // called once, whatever becomes of the job
	done  chan<- cloned
}

// cloned is a process that became the agent or another process's parent, or ended. The maker
// has to await it.
type cloned struct {
	pid int // 0: none was made
	err error
}

// A bind is a detached mount and its place in a sandbox.
type bind struct {
	tree *os.File
	at   string
}

func (b bind) close() { _ = b.tree.Close() }

// openBind returns a detached copy of what is at a place of the machine, with the
// options of a spec's mount.
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
		return bind{}, fmt.Errorf("options of %s: %w", m.Destination, err)
	}
	return b, nil
}

func setAttr(tree int, attr uint64, flags uint) error {
	if attr == 0 {
		return nil
	}
	return unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|flags, &unix.MountAttr{Attr_set: attr})
}

// attach mounts a detached mount. Links in root lead to what is in root.
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

// newStage starts a stage around a root directory, with the mounts that all sandboxes
// have in the same way. It ends when jobs is closed.
func newStage(root string, shared []specs.Mount, device specs.Mount, jobs chan job) error {
	s := &stage{jobs: jobs}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: its mounts end with the thread
		err := s.build(root, shared, device)
		ready <- err
		if err == nil {
			s.serve()
		}
	}()
	return <-ready
}

func (s *stage) build(root string, shared []specs.Mount, device specs.Mount) error {
	binds := []bind{}
	defer func() {
		for _, b := range binds {
			b.close()
		}
	}()
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("mounts of its own: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mounts of its own: %w", err)
	}
	for _, m := range append([]specs.Mount{
		{Source: root, Destination: hostRoot, Options: []string{"bind", "ro", "nosuid", "nodev"}},
		{Source: "/proc", Destination: "/proc", Options: []string{"rbind"}},
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
	for _, at := range []string{hostRoot, imageRoot, "/proc"} {
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
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("leave the machine's mounts: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the machine's mounts: %w", err)
	}
	return unix.Chdir("/")
}

func under(root string, all []specs.Mount) (moved []specs.Mount) {
	for _, m := range all {
		m.Destination = path.Join(root, m.Destination)
		moved = append(moved, m)
	}
	return moved
}

// deviceNames are the machine's devices that every sandbox has.
var deviceNames = []string{"null", "zero", "full", "random", "urandom", "tty"}

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

// buildDevices mounts a /dev that sandboxes share, so none can write to it.
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

func (s *stage) serve() {
	for j := range s.jobs {
		pid, err := s.do(j)
		j.free()
		j.done <- cloned{pid, err}
	}
}

func (s *stage) do(j job) (pid int, err error) {
	root := hostRoot
	if j.root != nil {
		root = imageRoot
		if err := attach(j.root, "/", root); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, unmount(root)) }()
		if err := s.copyDevices(); err != nil {
			return 0, err
		}
	}
	for _, b := range j.extra {
		if err := attach(b.tree, root, b.at); err != nil {
			return 0, err
		}
		if j.root == nil { // else it goes with the image's root
			defer func() { err = errors.Join(err, unmount(path.Join(root, b.at))) }()
		}
	}
	return j.clone(root)
}

// copyDevices shows the shared /dev in an image's root, too.
func (s *stage) copyDevices() error {
	b, err := openBind(specs.Mount{Source: hostRoot + "/dev", Destination: "/dev", Options: []string{"rbind"}})
	if err != nil {
		return err
	}
	defer b.close()
	return attach(b.tree, imageRoot, b.at)
}

// ErrUnclean says that a mount of one sandbox can't be removed from what others get. The
// maker must not make another.
var ErrUnclean = errors.New("a mount of one sandbox stays for others")

func unmount(at string) error {
	if err := unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("%w: unmount %s: %w", ErrUnclean, at, err)
	}
	return nil
}
