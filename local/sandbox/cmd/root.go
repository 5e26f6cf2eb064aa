package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/oci"
)

func mountRoot(c helper.Config, q *helper.Request, s *specs.Spec) error {
	root, err := cloneRoot(c, q, s)
	if err != nil {
		return err
	}
	defer root.Close()
	if c.Rootless != nil {
		err = ownRun(c)
	} else {
		err = ownMounts()
	}
	if err == nil {
		err = openRun(c.Rootless == nil)
	}
	if err == nil {
		err = os.MkdirAll(rootMount, 0o755)
	}
	if err != nil {
		return err
	}
	if err := unix.MoveMount(int(root.Fd()), "", unix.AT_FDCWD, rootMount, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount the root: %w", err)
	}
	return nil
}

// cloneRoot returns the root directory as a detached mount. That of an image is read-only, and has the
// sandbox's users as owners.
func cloneRoot(c helper.Config, q *helper.Request, s *specs.Spec) (*os.File, error) {
	dir, err := openRoot(c, q)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(dir) }()
	tree, err := unix.OpenTree(dir, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("clone the root's mount: %w", err)
	}
	root := os.NewFile(uintptr(tree), "root")
	switch {
	case q.Image == "":
	case c.Rootless != nil:
		err = restrictMount(tree, nil)
	default:
		err = mapOwnersOf(tree, s, c.Owners)
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// openRun makes the directory of the machine that sandboxes are mounted in. Every user may pass
// through it. With alone, it returns an error unless only root can write to it.
func openRun(alone bool) error {
	run := filepath.Dir(rootMount)
	if err := os.MkdirAll(run, 0o755); err != nil {
		return err
	}
	if alone && oci.RootOnly(run) != nil { // the returned error must name no path: users see it
		return finalError{errors.New("users other than root can write to the machine's directory run or run/rockpool, where sandboxes are mounted: make root their owner, with mode 755")}
	}
	// The sandbox's root user passes through it and isn't the machine's root; the server's umask
	// may have made it private.
	return os.Chmod(run, 0o755)
}

// ownMounts returns an error unless this process has its own mount namespace.
func ownMounts() error {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	parents, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", os.Getppid()))
	if err != nil {
		return err
	}
	if own == parents {
		return errors.New("rockpool-sandbox must be started in its own mount namespace to create a sandbox")
	}
	return nil
}

// openRoot opens the root directory. The server can write what it likes to the directory of images.
// So the path to an image must not pass through a link or into another file system. With mapped
// owners, a directory of the machine would be as open to the sandbox as to root.
func openRoot(c helper.Config, q *helper.Request) (int, error) {
	if q.Image == "" {
		return unix.Open(c.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	images, err := unix.Openat2(unix.AT_FDCWD, c.Images, &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return -1, fmt.Errorf("open the directory of images: %w", err)
	}
	defer func() { _ = unix.Close(images) }()
	dir, err := unix.Openat2(images, helper.ImageRoot(q.Image), &unix.OpenHow{
		Flags: flags, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return -1, fmt.Errorf("open the image: %w", err)
	}
	return dir, nil
}
