package groups

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent/cmd/proc"
	"github.com/rockpool/rockpool/test/need"
)

// The machine's own objects must not be removed.
func TestOwnsIPC(t *testing.T) {
	var stat unix.Stat_t
	if err := unix.Stat("/proc/self/ns/ipc", &stat); err != nil {
		t.Fatal(err)
	}
	if OwnsIPC() {
		t.Error("a test has them for itself")
	}
}

// The test starts itself in an IPC namespace of its own. Only its owner may remove an object, so each owner's turn
// must come, whatever the order.
func TestSegmentsOfAllUsersAreRemoved(t *testing.T) {
	need.Sandboxes(t)
	if os.Getenv("ROCKPOOL_OWN_IPC") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "ROCKPOOL_OWN_IPC=yes")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWIPC}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	const private, size = 0, 4096 // IPC_PRIVATE
	owners := []uint32{1000, 1001, 0, 1000, 1002}
	for i, owner := range owners {
		proc.OnThread(func() {
			if !setUser(owner) {
				t.Errorf("can't become user %d", owner)
				return
			}
			mode := uintptr(0o600)
			if i == 1 {
				mode = 0 // not even its owner may read it
			}
			if _, _, errno := unix.Syscall(unix.SYS_SHMGET, private, size, mode); errno != 0 {
				t.Error(errno)
			}
		})
	}
	left := func() int32 {
		var info [128]byte
		if _, err := kindsOfIPC[0].control(0, kindsOfIPC[0].info, unsafe.Pointer(&info)); err != nil {
			t.Error(err)
		}
		return *(*int32)(unsafe.Pointer(&info))
	}
	if n := left(); int(n) != len(owners) {
		t.Errorf("%d segments, want %d", n, len(owners))
	}
	RemoveSegments()
	if n := left(); n != 0 {
		t.Errorf("%d segments are left, want 0", n)
	}
}
