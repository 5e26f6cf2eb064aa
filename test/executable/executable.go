// Package executable writes programs that a test then executes.
package executable

import (
	"os"
	"syscall"
	"testing"
)

// Write writes an executable file, which every user may execute at once. The kernel
// refuses to execute a file that is open for writing, and what another test starts
// meanwhile has this process's descriptors until it executes its own program. So
// nothing is started while the file is open.
func Write(t testing.TB, path string, content []byte) {
	t.Helper()
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, content, 0o755)
	syscall.ForkLock.RUnlock()
	if err == nil {
		err = os.Chmod(path, 0o755) // whatever the umask is
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Copy copies a program to a path.
func Copy(t testing.TB, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	Write(t, to, content)
}
