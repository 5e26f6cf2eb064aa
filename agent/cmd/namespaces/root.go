package namespaces

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// newRoot is where the nested agent's root is assembled: a directory that every machine has. It is
// covered in this mount namespace only.
const newRoot = "/tmp"

// ofItsOwn are the machine's directories that the runner doesn't see. It has its own ones, empty
// ones, or none.
var ofItsOwn = map[string]bool{
	"proc": true, "dev": true, "tmp": true, "run": true, "sys": true, "root": true, "workspace": true, "boot": true, "lost+found": true,
}

// nomads are Nomad's directories in every kind of task.
var nomads = map[string]bool{"alloc": true, "local": true, "secrets": true, "private": true}

// EnterMachine completes the namespaces of [Machine] from inside. It brings up the loopback interface of
// a new network. It enters a root of the machine's files, which is read-only and has a directory of the
// machine as [Workspace].
func EnterMachine(workspace string, network bool) error {
	if !network {
		if err := RaiseLoopback(); err != nil {
			return fmt.Errorf("lo: %w", err)
		}
	}
	// Open it first: it may be below a directory that is covered.
	tree, err := unix.OpenTree(unix.AT_FDCWD, workspace, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("workspace: %w", err)
	}
	defer func() { _ = unix.Close(tree) }()
	return enter(func(string) bool { return true }, func(r *rootMaker) {
		r.mount("proc", "/proc", unix.MS_NOEXEC, "")
		r.mount("tmpfs", "/tmp", 0, "mode=1777,size=256m")
		r.do(Workspace, unix.MoveMount(tree, "", unix.AT_FDCWD, newRoot+Workspace, unix.MOVE_MOUNT_F_EMPTY_PATH))
		r.restrict(Workspace, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	})
}

// EnterDirectories completes the namespaces of [Directories] from inside. It makes a root of the
// task's files, read-only and without Nomad's directories. [Workspace] is a file system in memory of
// mib MiB, and /tmp, with [Home], of twice as much.
func EnterDirectories(mib int) error {
	return enter(func(name string) bool { return !nomads[name] }, func(r *rootMaker) {
		r.bind("/proc") // the kernel refuses a new /proc while parts of the old one are covered
		r.mount("tmpfs", "/tmp", 0, fmt.Sprintf("mode=1777,size=%dm", 2*mib))
		r.mount("tmpfs", Workspace, 0, fmt.Sprintf("mode=1777,size=%dm", mib))
	})
}

// enter makes a read-only root of the entries of / that shown selects, calls more for further
// mounts, and enters it.
func enter(shown func(name string) bool, more func(r *rootMaker)) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounts: %w", err)
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	var r rootMaker
	r.mount("tmpfs", "", 0, "mode=755,size=1m")
	for _, e := range entries {
		if !ofItsOwn[e.Name()] && shown(e.Name()) {
			r.show(e)
		}
	}
	for _, dir := range []string{"/proc", "/dev", "/tmp", "/run", "/sys", "/root", Workspace, "/old"} {
		r.do(dir, os.Mkdir(newRoot+dir, 0o755))
	}
	more(&r)
	r.devices()
	r.do("pivot_root", unix.PivotRoot(newRoot, newRoot+"/old"))
	if err := errors.Join(r.errs...); err != nil {
		return err
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount("/old", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("the machine's root: %w", err)
	}
	if err := os.Remove("/old"); err != nil {
		return err
	}
	// Read-only comes last, since the steps before create and remove directories in the root.
	return unix.Mount("", "/", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
}

// A rootMaker makes mounts. It continues after an error and collects all of them.
type rootMaker struct{ errs []error }

func (r *rootMaker) do(what string, err error) {
	if err != nil {
		r.errs = append(r.errs, fmt.Errorf("%s: %w", what, err))
	}
}

// mount mounts a new file system at a path of the new root, without devices and set-user-ID
// programs.
func (r *rootMaker) mount(kind, at string, flags uintptr, data string) {
	r.do(kind+" at "+at, unix.Mount(kind, newRoot+at, kind, unix.MS_NOSUID|unix.MS_NODEV|flags, data))
}

// bind shows a file or directory of the machine, with the mounts below it.
func (r *rootMaker) bind(path string) {
	r.do(path, unix.Mount(path, newRoot+path, "", unix.MS_BIND|unix.MS_REC, ""))
}

// restrict sets attributes of a mount, and of those below it.
func (r *rootMaker) restrict(path string, attributes uint64) {
	r.do(path, unix.MountSetattr(unix.AT_FDCWD, newRoot+path, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: attributes}))
}

// show shows a directory of the machine's root read-only, or a link in it.
func (r *rootMaker) show(e fs.DirEntry) {
	path := "/" + e.Name()
	switch {
	case e.Type()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		r.do(path, err)
		r.do(path, os.Symlink(target, newRoot+path))
	case e.IsDir():
		r.do(path, os.Mkdir(newRoot+path, 0o755))
		r.bind(path)
		r.restrict(path, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	}
}

func (r *rootMaker) devices() {
	r.do("/dev", unix.Mount("tmpfs", newRoot+"/dev", "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=755,size=64k"))
	for _, device := range []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"} {
		r.do(device, os.WriteFile(newRoot+device, nil, 0o666))
		r.bind(device)
	}
	for _, dir := range []string{"/dev/pts", "/dev/shm"} {
		r.do(dir, os.Mkdir(newRoot+dir, 0o755))
	}
	r.do("/dev/pts", unix.Mount("devpts", newRoot+"/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,max=32,ptmxmode=0666,mode=0620,gid=5"))
	r.mount("tmpfs", "/dev/shm", unix.MS_NOEXEC, "mode=1777,size=64m")
	for link, target := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		r.do(link, os.Symlink(target, newRoot+"/dev/"+link))
	}
}
