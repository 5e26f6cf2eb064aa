package lockfile_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/rockpool/rockpool/runtime/lockfile"
)

func open(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := lockfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func TestOnlyOneProcessHoldsTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, second := open(t, path), open(t, path)
	if err := lockfile.Try(first); err != nil {
		t.Fatal(err)
	}
	if err := lockfile.Try(second); !errors.Is(err, lockfile.ErrHeld) {
		t.Errorf("a second one has it: %v", err)
	}
	ctx, end := context.WithCancel(t.Context())
	end()
	if err := lockfile.Wait(ctx, second); !errors.Is(err, lockfile.ErrHeld) {
		t.Errorf("a second one, which waited, has it: %v", err)
	}
	waited := make(chan error, 1)
	go func() { waited <- lockfile.Wait(t.Context(), second) }()
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
	if err := lockfile.Try(dir); err != nil {
		t.Error(err)
	}
}
