package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// holdCommand starts this program as a process that does nothing: a user
// namespace is there as long as somebody is in it, or has it open.
const holdCommand = "hold"

func hold() {
	for {
		_ = unix.Pause()
	}
}

// owned makes the files of an open tree belong to the sandbox's users: what
// belongs to user owners + 1000 there, to the sandbox's user 1000.
func owned(tree int, s *specs.Spec, owners int) error {
	users, err := openUsers(from(s.Linux.UIDMappings, owners), from(s.Linux.GIDMappings, owners))
	if err != nil {
		return fmt.Errorf("user namespace: %w", err)
	}
	defer users.Close()
	err = harmless(tree, users)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
		return finalError{fmt.Errorf("images can't be used here: the file system of the server's data directory can't map owners (ext4, xfs, btrfs and tmpfs can): %w", err)}
	}
	if err != nil {
		return fmt.Errorf("map owners: %w", err)
	}
	return nil
}

// harmless makes an open tree read-only, and nothing in it gives privileges or is a
// device. Where users isn't nil, its owners are those of that user namespace.
func harmless(tree int, users *os.File) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if users != nil {
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(users.Fd())
	}
	return unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr)
}

// openUsers returns a user namespace with these mappings. A process has to be
// made for it; none is left.
func openUsers(users, groups []specs.LinuxIDMapping) (*os.File, error) {
	runtime.LockOSThread() // whose end would be the signal
	defer runtime.UnlockOSThread()
	process, err := os.StartProcess("/proc/self/exe", []string{"rockpool-sandbox", holdCommand}, &os.ProcAttr{Sys: &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: mappings(users),
		GidMappings: mappings(groups),
		Pdeathsig:   unix.SIGKILL,
	}})
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = process.Kill()
		_, _ = process.Wait()
	}()
	return os.Open(fmt.Sprintf("/proc/%d/ns/user", process.Pid))
}

// from has the first of a mapping be another one.
func from(mapping []specs.LinuxIDMapping, first int) []specs.LinuxIDMapping {
	all := slices.Clone(mapping)
	for i := range all {
		all[i].ContainerID += uint32(first)
	}
	return all
}

func mappings(of []specs.LinuxIDMapping) (all []syscall.SysProcIDMap) {
	for _, m := range of {
		all = append(all, syscall.SysProcIDMap{ContainerID: int(m.ContainerID), HostID: int(m.HostID), Size: int(m.Size)})
	}
	return all
}
