package local

import "testing"

func TestMeasure(t *testing.T) {
	got, err := measure(2000)
	if err != nil || min(got.CPUMHz, got.MemoryMiB, got.Processes, got.WorkspaceMiB) <= 0 || got.CPUMHz%2000 != 0 || got.MemoryMiB < 64 || got.MemoryMiB != got.WorkspaceMiB || got.Processes < 100 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := processLimit("/proc/sys/kernel/no-such-limit"); err == nil {
		t.Error("a missing limit has a value")
	}
}
