package disk_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/rockpool/rockpool/runtime/disk"
)

func open(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := disk.OpenLock(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func TestOnlyOneProcessHoldsTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, second := open(t, path), open(t, path)
	if err := disk.TryLock(first); err != nil {
		t.Fatal(err)
	}
	if err := disk.TryLock(second); !errors.Is(err, disk.ErrLocked) {
		t.Errorf("a second one has it: got %v, want %v", err, disk.ErrLocked)
	}
	ctx, end := context.WithCancel(t.Context())
	end()
	if err := disk.Lock(ctx, second); !errors.Is(err, disk.ErrLocked) {
		t.Errorf("a second one, which waited, has it: got %v, want %v", err, disk.ErrLocked)
	}
	waited := make(chan error, 1)
	go func() { waited <- disk.Lock(t.Context(), second) }()
	_ = first.Close()
	if err := <-waited; err != nil {
		t.Errorf("it isn't locked: %v", err)
	}
}

func TestDirectoriesAreLocked(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := disk.TryLock(dir); err != nil {
		t.Error(err)
	}
}
