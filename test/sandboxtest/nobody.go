package sandboxtest

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// nobody is a user that owns nothing.
const nobody = 65534

// AsNobody calls f with the file permissions of a user without privileges. It affects only this
// goroutine. If the test isn't root, it calls f directly.
func AsNobody(t testing.TB, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	runtime.LockOSThread() // the kernel keeps the user per thread
	defer runtime.UnlockOSThread()
	if err := unix.Setfsuid(nobody); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setfsuid(0); err != nil {
			panic(err) // the thread can't be reused
		}
	}()
	f()
}

// OpenDir returns a directory of the test that every user can search.
func OpenDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for at := dir; at != filepath.Dir(os.TempDir()) && at != os.TempDir(); at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
