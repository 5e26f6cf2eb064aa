package cgroup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

// divided makes the cgroups of a sandbox in version 1.
func divided(t *testing.T, owner int, want Limits) (trees Hierarchies, path string, divide func() error) {
	t.Helper()
	need.Sandboxes(t)
	trees, err := Mounted()
	if err != nil {
		t.Fatal(err)
	}
	if _, unified := trees.unified(); unified {
		t.Skip("this machine has version 2 of cgroups alone; TestSettleOnVersion2 shows it there")
	}
	if err := trees.Divisible(); err != nil {
		need.Lacks(t, "version 1 of cgroups can't divide groups: %v", err)
	}
	path = fmt.Sprintf("/rockpool/test-divided-%d", os.Getpid())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait.Limit)
		defer cancel()
		if err := trees.Remove(ctx, path); err != nil {
			t.Error(err)
		}
	})
	return trees, path, func() error {
		parts, err := trees.Divide(path, owner, want)
		for _, p := range parts {
			_ = p.Dir.Close()
		}
		return err
	}
}

// TestDivideOnVersion1: the commands' common limits are set, and their owner may join the commands'
// cgroups, and nothing more. Its twin for version 2 is TestSettleOnVersion2 in unified_test.go.
func TestDivideOnVersion1(t *testing.T) {
	const owner = 1_234_567_890
	trees, path, divide := divided(t, owner, Limits{Memory: 64 << 20, Processes: 10})
	if err := divide(); err != nil {
		t.Fatal(err)
	}
	for controller, files := range map[string]map[string]string{
		"pids":   {"pids.max": "10"},
		"memory": {"memory.limit_in_bytes": "67108864"},
	} {
		h, _ := trees.Controller(controller)
		run := filepath.Join(h.Mount, path, Commands)
		for file, want := range files {
			if got, err := os.ReadFile(filepath.Join(run, file)); strings.TrimSpace(string(got)) != want {
				t.Errorf("%s is %q (%v)", file, got, err)
			}
		}
		for _, slot := range slots(run) {
			for file, uid := range map[string]uint32{"tasks": owner, "cgroup.procs": 0, "": 0} {
				var info unix.Stat_t
				if err := unix.Stat(filepath.Join(slot, file), &info); err != nil || info.Uid != uid {
					t.Errorf("%s of %s belongs to %d (%v)", file, slot, info.Uid, err)
				}
			}
		}
	}
}

// TestDivideRefusesOnVersion1: a limit that the kernel changes is an error. Its twin for version 2
// is TestSettleRefusesOnVersion2 in unified_test.go.
func TestDivideRefusesOnVersion1(t *testing.T) {
	_, _, divide := divided(t, 0, Limits{Memory: 64<<20 + 1, Processes: 10}) // the kernel counts in pages
	if err := divide(); err == nil {
		t.Error("a limit that reads otherwise is taken")
	}
}
