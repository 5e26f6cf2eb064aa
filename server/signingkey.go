package server

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/rockpool/rockpool/graph/download"
)

// signingKey returns the key that signs download URLs. The key is in the data directory, readable
// only by its owner; the first start creates it. The caller must hold the directory's lock.
func signingKey(dir string) ([]byte, error) {
	path := filepath.Join(dir, "signing.key")
	key, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return makeKey(path)
	case err != nil:
		return nil, fmt.Errorf("read the signing key: %w", err)
	case len(key) != download.KeySize:
		return nil, fmt.Errorf("%s has %d bytes, but must have %d: remove it, and the server creates a new one; existing download URLs then stop working", path, len(key), download.KeySize)
	}
	if err := os.Chmod(path, 0o600); err != nil { // copying the directory may have made it readable for others
		return nil, fmt.Errorf("make the signing key private: %w", err)
	}
	return key, nil
}

// newKey returns a random key. It doesn't store it.
func newKey() []byte {
	key := make([]byte, download.KeySize)
	_, _ = rand.Read(key) // never fails
	return key
}

// makeKey writes a new key atomically: after a power failure there is the whole key or none.
func makeKey(path string) ([]byte, error) {
	key := newKey()
	if err := renameio.WriteFile(path, key, 0o600, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(0o600)); err != nil {
		return nil, fmt.Errorf("create the signing key: %w", err)
	}
	return key, nil
}
