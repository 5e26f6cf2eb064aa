package house

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A Disk is a small file system in memory that can be filled.
type Disk struct {
	dir     string
	ballast string
}

// diskBytes suffices for the output of some minutes.
const diskBytes = 256 << 20

// MountDisk makes a directory and mounts a Disk there.
func MountDisk(dir string) (*Disk, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	if err := unix.Mount("rockpool-chaos", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("size=%d,mode=700", diskBytes)); err != nil {
		return nil, fmt.Errorf("mount %s: %w", dir, err)
	}
	return &Disk{dir: dir, ballast: filepath.Join(dir, "ballast")}, nil
}

// Fill writes until no byte fits.
func (d *Disk) Fill() error {
	f, err := os.OpenFile(d.ballast, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	for piece := make([]byte, 1<<20); len(piece) > 0; {
		_, err = f.Write(piece)
		if errors.Is(err, unix.ENOSPC) {
			piece = piece[:len(piece)/2]
		} else if err != nil {
			return err
		}
	}
	return nil
}

// Free removes what Fill wrote.
func (d *Disk) Free() error { return os.Remove(d.ballast) }

// Unmount fails if a process still uses the disk, and names it.
func (d *Disk) Unmount() error {
	if err := unix.Unmount(d.dir, 0); err != nil {
		_ = unix.Unmount(d.dir, unix.MNT_DETACH)
		return fmt.Errorf("unmount %s: %w", d.dir, err)
	}
	return os.Remove(d.dir)
}
