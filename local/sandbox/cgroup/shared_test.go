package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

// TestWholeDisk: limits of reads apply to whole disks, whichever partition files are on. The
// directories imitate the kernel's, for a disk with a partition and one without.
func TestWholeDisk(t *testing.T) {
	sys := t.TempDir()
	links := filepath.Join(sys, "dev", "block")
	if err := os.MkdirAll(links, 0o755); err != nil {
		t.Fatal(err)
	}
	for device, at := range map[string]string{
		"8:0":   "devices/pci0000:00/ata1/block/sda",
		"8:1":   "devices/pci0000:00/ata1/block/sda/sda1",
		"254:0": "devices/pci0000:00/virtio1/block/vda",
		"253:2": "devices/virtual/block/dm-2",
	} {
		dir := filepath.Join(sys, at)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "dev"), []byte(device+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../../"+at, filepath.Join(links, device)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(sys, "devices/pci0000:00/ata1/block/sda/sda1/partition"), []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for device, want := range map[string]string{"8:0": "8:0", "8:1": "8:0", "254:0": "254:0", "253:2": "253:2", "0:35": ""} {
		if got, err := wholeDisk(links, device); got != want || err != nil {
			t.Errorf("the disk of %s is %q, %v; want %q", device, got, err, want)
		}
	}
}
