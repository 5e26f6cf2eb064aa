// Package executable writes programs that a test can execute immediately.
package executable

import (
	"os"
	"syscall"
	"testing"
)

// Write writes a file that every user may execute. The kernel refuses to execute a file that is
// open for writing, and a child process has this process's descriptors until it executes its own
// program. So Write prevents starts of processes while the file is open.
func Write(t testing.TB, path string, content []byte) {
	t.Helper()
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, content, 0o755)
	syscall.ForkLock.RUnlock()
	if err == nil {
		err = os.Chmod(path, 0o755) // independent of the umask
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Copy copies a program to a path, like Write.
func Copy(t testing.TB, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	Write(t, to, content)
}
