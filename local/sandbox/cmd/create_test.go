package main

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/test/need"
)

// Each namespace that a process shares with the helper is reported.
func TestSharedNamespacesAreReported(t *testing.T) {
	need.Sandboxes(t)
	kinds := map[string]uintptr{
		"": 0, "user": unix.CLONE_NEWUSER, "pid": unix.CLONE_NEWPID, "mnt": unix.CLONE_NEWNS, "net": unix.CLONE_NEWNET,
		"ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS, "cgroup": unix.CLONE_NEWCGROUP,
	}
	var all uintptr
	for _, flag := range kinds {
		all |= flag
	}
	for shared, flag := range kinds {
		cmd := exec.Command("sleep", "60")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: all &^ flag}
		if shared != "user" {
			ids := []syscall.SysProcIDMap{{Size: 1}}
			cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = ids, ids
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		err := checkNamespaces(cmd.Process.Pid)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if (err == nil) != (shared == "") || err != nil && !strings.Contains(err.Error(), " "+shared+" namespace") {
			t.Errorf("one that shares %q: %v", shared, err)
		}
	}
}
