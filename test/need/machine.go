package need

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rockpool/rockpool/runtime/disk"
)

// Machine gives a test exclusive use of the machine-wide accounts until its end, for example of the
// memory of connections, so that it can fill or measure them. It waits until no other test has
// that, in any process. The test also needs sandboxes.
func Machine(t testing.TB) {
	t.Helper()
	Sandboxes(t)
	file, err := disk.OpenLock(filepath.Join(os.TempDir(), "rockpool-test-machine.lock"))
	if err == nil {
		err = disk.Lock(t.Context(), file)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() }) // unlocks it
}
