package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Shared are limits of machine-wide resources other than memory, processes and CPU time.
type Shared struct {
	Buffers int64    // bytes of TCP and UDP buffers in the kernel; version 2 counts them as memory
	Disks   []string // whole disks that can be read from, as "major:minor"
	Read    int64    // bytes per second from each disk, 0 for no limit
	Reads   int64    // reads per second from each disk
}

// Share sets limits in a cgroup and in those of commands below it, and reads them back. It leaves
// out limits that the kernel doesn't have. In version 1 each cgroup has limits of its own, because
// they don't add up there; so processes must start afterwards.
func (all Hierarchies) Share(path string, want Shared) error {
	return errors.Join(all.shareBuffers(path, want), all.shareDisks(path, want))
}

// withProcesses returns the cgroups at and below dir that can have processes.
func withProcesses(dir string) (dirs []string, err error) {
	dirs, err = Group{Dir: dir}.parts()
	if len(dirs) > 1 {
		dirs = append(dirs, filepath.Join(dir, Commands))
	}
	return dirs, err
}

// shareBuffers limits the socket buffers of TCP, in version 1.
func (all Hierarchies) shareBuffers(path string, want Shared) error {
	h, ok := all.Controller("memory")
	if !ok || h.V2 {
		return nil
	}
	dirs, err := withProcesses(filepath.Join(h.Mount, path))
	for _, dir := range dirs {
		// Newer kernels may lack it: it is deprecated together with version 1.
		err = errors.Join(err, set(dir, "memory.kmem.tcp.limit_in_bytes", want.Buffers, true))
	}
	return err
}

// shareDisks limits reads from disks: in version 2 for all commands together, in version 1 for each
// cgroup.
func (all Hierarchies) shareDisks(path string, want Shared) error {
	if want.Read == 0 || len(want.Disks) == 0 {
		return nil
	}
	if h, ok := all.unified(); ok {
		dir := filepath.Join(h.Mount, path)
		if divided, err := exists(filepath.Join(dir, Commands)); err != nil {
			return err
		} else if divided {
			dir = filepath.Join(dir, Commands)
		}
		var err error
		for _, disk := range want.Disks {
			err = errors.Join(err, setDisk(dir, "io.max", disk, fmt.Sprintf("rbps=%d wbps=max riops=%d wiops=max", want.Read, want.Reads)))
		}
		return err
	}
	h, ok := all.Controller("blkio")
	if !ok || h.V2 {
		return nil
	}
	dirs, err := withProcesses(filepath.Join(h.Mount, path))
	for _, dir := range dirs {
		for _, disk := range want.Disks {
			err = errors.Join(err,
				setDisk(dir, "blkio.throttle.read_bps_device", disk, strconv.FormatInt(want.Read, 10)),
				setDisk(dir, "blkio.throttle.read_iops_device", disk, strconv.FormatInt(want.Reads, 10)))
		}
	}
	return err
}

// setDisk writes a disk's line to a file, and reads it back. It skips a file that is missing
// because the kernel or the cgroup above has no such limits, and a device that can't be limited.
func setDisk(dir, file, disk, limits string) error {
	at, line := filepath.Join(dir, file), disk+" "+limits
	text, err := exchange(at, line)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.EOPNOTSUPP):
		return nil // the kernel can't limit reads of this device
	case err != nil:
		return err
	case !slices.Contains(strings.Split(text, "\n"), line):
		return fmt.Errorf("%s is %q, without %q", at, text, line)
	}
	return nil
}

// Disks returns the disks that files are on, named as cgroups do. A file system that is on no disk,
// or doesn't report one, is left out.
func Disks(paths ...string) (disks []string, err error) {
	for _, path := range paths {
		var stat unix.Stat_t
		if err := unix.Stat(path, &stat); errors.Is(err, unix.ENOENT) {
			continue
		} else if err != nil {
			return nil, &os.PathError{Op: "stat", Path: path, Err: err}
		}
		disk, err := wholeDisk(devices, fmt.Sprintf("%d:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev)))
		if err != nil {
			return nil, err
		}
		if disk != "" && !slices.Contains(disks, disk) {
			disks = append(disks, disk)
		}
	}
	return disks, nil
}

// devices has a link to each block device, named "major:minor". A partition's directory is in its
// disk's.
const devices = "/sys/dev/block"

// wholeDisk returns the disk of a partition; any other device is returned as it is. It returns "" for
// a file system without a device.
func wholeDisk(devices, device string) (string, error) {
	at, err := filepath.EvalSymlinks(filepath.Join(devices, device))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(at, "partition")); err == nil {
		at = filepath.Dir(at)
	} else if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(at, "dev"))
	return strings.TrimSpace(string(text)), err
}

// LimitsReads reports whether the kernel can limit what cgroups read from disks.
func (all Hierarchies) LimitsReads() bool {
	if h, ok := all.unified(); ok {
		return h.enables("io")
	}
	h, ok := all.Controller("blkio")
	return ok && !h.V2
}
