package executor

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

const memoryAlone = "ROCKPOOL_TEST_MEMORY_ALONE"

// The test uses much memory, and little, in its own process, because other tests' memory varies.
func TestMemoryIsReturnedWhenItPaysOff(t *testing.T) {
	if os.Getenv(memoryAlone) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), memoryAlone+"=yes")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	i := newIdler()
	if i.least <= 0 {
		t.Fatalf("%d KiB are in use", i.least)
	}
	if i.giveBack(); i.given {
		t.Error("memory was given back although nothing had come into use")
	}
	const much = 16 << 10 // KiB
	garbage := make([]byte, much<<10)
	for at := 0; at < len(garbage); at += 4096 {
		garbage[at] = 1
	}
	full := inUse()
	if full < i.least+much/2 {
		t.Errorf("%d KiB are in use, %d more than before", full, full-i.least)
	}
	at := uintptr(unsafe.Pointer(&garbage[0])) // the garbage itself is collected
	runtime.KeepAlive(garbage)
	if before := resident(t, at, much<<10); before < much {
		t.Errorf("%d KiB of %d are there before they are given back", before, much)
	}
	if i.giveBack(); !i.given {
		t.Error("nothing was given back")
	}
	if after := resident(t, at, much<<10); after > much/2 {
		t.Errorf("%d KiB of %d are still there", after, much)
	}
}

// resident returns how many KiB of an area are resident. The whole process's memory would be
// inexact, since that of the race detector varies.
func resident(t *testing.T, at uintptr, size int) (kib int) {
	t.Helper()
	pages := make([]byte, size/4096)
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, at, uintptr(size), uintptr(unsafe.Pointer(&pages[0]))); errno != 0 {
		t.Fatal(errno)
	}
	for _, page := range pages {
		kib += int(page&1) * 4
	}
	return kib
}
