package output

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/test/need"
)

// tinyDisk mounts a small tmpfs for a test.
func tinyDisk(t *testing.T, size int) string {
	t.Helper()
	need.Sandboxes(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Fatalf("mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}
