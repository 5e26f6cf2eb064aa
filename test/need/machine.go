package need

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rockpool/rockpool/runtime/lockfile"
)

// Machine gives a test to the end what the machine counts once for all, for example the
// memory of its connections: the test fills or measures that, and waits until no other
// test does, in any process. It needs sandboxes, too.
func Machine(t testing.TB) {
	t.Helper()
	Sandboxes(t)
	file, err := lockfile.Open(filepath.Join(os.TempDir(), "rockpool-test-machine.lock"))
	if err == nil {
		err = lockfile.Wait(t.Context(), file)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() }) // which unlocks it
}
