// Package disk gives tests a file system of their own that they can break: a real
// ext4 in a file.
package disk

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/test/need"
)

// A Disk is a mounted file system. The test's end unmounts it, so what uses it has
// to end before: clean-ups that are registered later do.
type Disk struct {
	Dir   string
	under string // the directory of the device's image
}

// New mounts a file system of 64 MiB. It ends a test where this machine can't.
func New(t testing.TB) Disk {
	t.Helper()
	need.Sandboxes(t)
	return mount(t, t.TempDir(), "remount-ro")
}

// NewThin mounts a file system whose device can be starved (see Starve). It has no
// journal, whose errors would make it read-only.
func NewThin(t testing.TB) Disk {
	t.Helper()
	need.Sandboxes(t)
	under := t.TempDir()
	run(t, "mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", under)
	t.Cleanup(func() {
		if err := unix.Unmount(under, unix.MNT_DETACH); err != nil { // the kernel may still close the loop device
			t.Error(err)
		}
	})
	return mount(t, under, "continue", "-O", "^has_journal", "-E", "lazy_itable_init=0")
}

func mount(t testing.TB, under, errors string, options ...string) Disk {
	t.Helper()
	d, image := Disk{t.TempDir(), under}, filepath.Join(under, "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 64<<20); err != nil {
		t.Fatal(err)
	}
	run(t, "mkfs.ext4", append(options, "-q", "-F", image)...)
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		need.Lacks(t, "no loop devices: %v", err)
	}
	run(t, "mount", "-o", "loop,errors="+errors, image, d.Dir)
	t.Cleanup(func() {
		if err := unix.Unmount(d.Dir, 0); err != nil {
			t.Error(err)
		}
	})
	return d
}

// Error injects an error into the file system: it becomes read-only, also
// for files that are open, and stays so.
func (d Disk) Error(t testing.TB) {
	t.Helper()
	device := filepath.Base(strings.TrimSpace(run(t, "findmnt", "-no", "SOURCE", d.Dir)))
	if err := os.WriteFile("/sys/fs/ext4/"+device+"/trigger_fs_error", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
}

// Die shuts the file system down: every operation on it fails with EIO from now on.
func (d Disk) Die(t testing.TB) {
	t.Helper()
	dir, err := os.Open(d.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	const shutdown, atOnce = 0x8004587d, 2 // EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH
	flags := uint32(atOnce)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), shutdown, uintptr(unsafe.Pointer(&flags))); errno != 0 {
		t.Fatal(errno)
	}
}

// Starve fills the room of a thin disk's device: until Feed it refuses every block that
// it doesn't have yet. Writes to files succeed: they go to the page cache. Only fsync returns
// the error.
func (d Disk) Starve(t testing.TB) {
	t.Helper()
	run(t, "sync", "-f", d.Dir) // the file system's own blocks exist from now on
	file, err := os.Create(d.ballast())
	if err != nil {
		t.Fatal(err)
	}
	for size := 1 << 20; size >= 4096; {
		if _, err := file.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

// Feed ends what Starve did.
func (d Disk) Feed(t testing.TB) {
	t.Helper()
	if err := os.Remove(d.ballast()); err != nil {
		t.Fatal(err)
	}
}

func (d Disk) ballast() string { return filepath.Join(d.under, "ballast") }

// Lock makes a file of this file system immutable: every write to it fails with EPERM,
// also where it is open, until Unlock. Both may be called by any goroutine.
func (d Disk) Lock(t testing.TB, path string) { t.Helper(); run(t, "chattr", "+i", path) }

// Unlock ends what Lock did.
func (d Disk) Unlock(t testing.TB, path string) { t.Helper(); run(t, "chattr", "-i", path) }

func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
