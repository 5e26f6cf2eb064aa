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

// signingKey returns the key that signs addresses of downloads, which lies in
// the data directory for its owner only, and makes it at the first start. The
// caller holds the directory.
func signingKey(dir string) ([]byte, error) {
	path := filepath.Join(dir, "signing.key")
	key, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return makeKey(path)
	case err != nil:
		return nil, fmt.Errorf("read the signing key: %w", err)
	case len(key) != download.KeySize:
		return nil, fmt.Errorf("%s has %d bytes and not %d: remove it; a new one is made, and addresses of downloads that were handed out hold no more", path, len(key), download.KeySize)
	}
	if err := os.Chmod(path, 0o600); err != nil { // a copy of the directory may have opened it to others
		return nil, fmt.Errorf("close the signing key to others: %w", err)
	}
	return key, nil
}

func newKey() []byte {
	key := make([]byte, download.KeySize)
	_, _ = rand.Read(key) // it never fails
	return key
}

// makeKey writes a new key; a power cut leaves it whole, or none.
func makeKey(path string) ([]byte, error) {
	key := newKey()
	if err := renameio.WriteFile(path, key, 0o600, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(0o600)); err != nil {
		return nil, fmt.Errorf("make the signing key: %w", err)
	}
	return key, nil
}
