package memory

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
)

const memoryAlone = "ROCKPOOL_TEST_MEMORY_ALONE"

// TestMemoryIsGivenBackWhereItIsWorthIt uses much memory, and little, in a
// process of its own: the memory of other tests comes and goes.
func TestMemoryIsGivenBackWhereItIsWorthIt(t *testing.T) {
	if os.Getenv(memoryAlone) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), memoryAlone+"=yes")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	i := NewIdler()
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
	runtime.KeepAlive(garbage)
	if i.giveBack(); !i.given || inUse() > full-much/2 {
		t.Errorf("%d of %d KiB are still in use", inUse(), full)
	}
}
