package server

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSigningKeyIsKept(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "signing.key")
	first, err := signingKey(dir)
	if err != nil || len(first) != 32 || bytes.Equal(first, make([]byte, 32)) {
		t.Fatalf("%x, %v", first, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if again, err := signingKey(dir); err != nil || !bytes.Equal(again, first) {
		t.Errorf("another one: %x, %v", again, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("it stayed open: %v, %v", info, err)
	}
	if other, err := signingKey(t.TempDir()); err != nil || bytes.Equal(other, first) {
		t.Errorf("two directories have one key: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := os.WriteFile(path, first[:5], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := signingKey(dir); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a damaged key: got %v, want an error that names %s", err, path)
	}
}
