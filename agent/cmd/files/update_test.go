package files

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// User code that puts a pipe in place of a file being written doesn't block the update.
func TestPipeDoesNotBlockAnUpdate(t *testing.T) {
	at := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(at, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir, err := unix.Open(at, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(dir) }()
	awaitWriters(dir, "pipe")
}
