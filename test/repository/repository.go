// Package repository finds the module's sources from a test's working directory.
package repository

import (
	"fmt"
	"os"
	"path/filepath"
)

// Root returns the directory of go.mod: the working directory or the nearest parent. A test runs in
// its package's directory.
func Root() (string, error) {
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := here; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == "/" {
			return "", fmt.Errorf("there is no go.mod in %s or above it", here)
		}
	}
}
