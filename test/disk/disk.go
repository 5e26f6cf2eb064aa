// Package disk gives each test a file system that it can break: a real ext4 in a file.
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

// A Disk is a mounted file system. It is unmounted at the test's end, so everything that uses it
// must end before: register those cleanups later.
type Disk struct {
	Dir   string
	under string // directory of the device's image
}

// New mounts a file system of 64 MiB. It skips or fails the test if this machine can't.
func New(t testing.TB) Disk {
	t.Helper()
	need.Sandboxes(t)
	return mount(t, t.TempDir(), "remount-ro")
}

// NewThin mounts a file system whose device can run out of blocks (see Starve). It has no journal,
// whose errors would make it read-only.
func NewThin(t testing.TB) Disk {
	t.Helper()
	need.Sandboxes(t)
	under := t.TempDir()
	run(t, "mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", under)
	t.Cleanup(func() {
		if err := unix.Unmount(under, unix.MNT_DETACH); err != nil { // the kernel may still be closing the loop device
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

// Die shuts the file system down: from now on every operation fails with EIO.
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

// Starve fills the device of a thin disk: until Feed it refuses to allocate blocks. Writes to files
// still succeed, because they go to the page cache. Only fsync returns the error.
func (d Disk) Starve(t testing.TB) {
	t.Helper()
	run(t, "sync", "-f", d.Dir) // allocates the file system's own blocks
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

// Feed undoes Starve.
func (d Disk) Feed(t testing.TB) {
	t.Helper()
	if err := os.Remove(d.ballast()); err != nil {
		t.Fatal(err)
	}
}

func (d Disk) ballast() string { return filepath.Join(d.under, "ballast") }

// Lock makes a file immutable: until Unlock every write fails with EPERM, even through open
// descriptors. Both are safe for concurrent use.
func (d Disk) Lock(t testing.TB, path string) { t.Helper(); run(t, "chattr", "+i", path) }

// Unlock undoes Lock.
func (d Disk) Unlock(t testing.TB, path string) { t.Helper(); run(t, "chattr", "-i", path) }

func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
