package launch

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime/disk"
)

// A killed server's helper shares its lock until it ends. A live server holds its lock until its
// end.
func TestTakeLockWaitsForHelpers(t *testing.T) {
	for _, c := range []struct {
		held, waited time.Duration
		want         error
	}{
		{0, 0, nil},
		{5 * time.Second, 5 * time.Second, nil},
		{time.Hour, 6 * time.Second, disk.ErrLocked},
	} {
		synctest.Test(t, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "lock")
			open := func() *os.File {
				file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
				if err != nil {
					t.Fatal(err)
				}
				return file
			}
			helper, server := open(), open()
			defer server.Close()
			if err := unix.Flock(int(helper.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
				t.Fatal(err)
			}
			if c.held == 0 {
				_ = helper.Close()
			} else {
				time.AfterFunc(c.held, func() { _ = helper.Close() })
			}
			began := time.Now()
			if err := TakeLock(server); !errors.Is(err, c.want) {
				t.Errorf("held for %v: %v, want %v", c.held, err, c.want)
			}
			if waited := time.Since(began).Round(time.Second); waited != c.waited { // in the bubble's time
				t.Errorf("held for %v: waited %v, want %v", c.held, waited, c.waited)
			}
		})
	}
}
