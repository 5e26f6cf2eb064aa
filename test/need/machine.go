package need

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Machine gives a test to the end what the machine counts once for all, for example the
// memory of its connections: the test fills or measures that, and waits until no other
// test does, in any process. It needs sandboxes, too.
func Machine(t testing.TB) {
	t.Helper()
	Sandboxes(t)
	file, err := os.OpenFile(filepath.Join(os.TempDir(), "rockpool-test-machine.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() }) // which unlocks it
}
