package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/maker"
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

// mapOwnersOf maps the owners of an open tree to the users of a spec: files of user owners+1000
// belong to the sandbox's user 1000.
func mapOwnersOf(tree int, s *specs.Spec, owners int) error {
	users, err := maker.Users(shiftMapping(s.Linux.UIDMappings, owners), shiftMapping(s.Linux.GIDMappings, owners))
	if err != nil {
		return fmt.Errorf("user namespace: %w", err)
	}
	defer users.Close()
	err = restrictMount(tree, users)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
		return finalError{fmt.Errorf("images are unavailable: the file system of the server's data directory can't map owners; use ext4, xfs, btrfs or tmpfs: %w", err)}
	}
	if err != nil {
		return fmt.Errorf("map owners: %w", err)
	}
	return nil
}

// restrictMount makes an open tree read-only, without devices and without setuid bits. If users
// isn't nil, it also maps the owners to that user namespace.
func restrictMount(tree int, users *os.File) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if users != nil {
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(users.Fd())
	}
	return unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr)
}

func shiftMapping(mapping []specs.LinuxIDMapping, first int) []specs.LinuxIDMapping {
	all := slices.Clone(mapping)
	for i := range all {
		all[i].ContainerID += uint32(first)
	}
	return all
}
