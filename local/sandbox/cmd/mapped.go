package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/maker"
)

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
