// Package artifacts keeps files that explain a failed test: logs, events, screenshots. The variable
// ROCKPOOL_ARTIFACTS names their directory; `make test` sets it.
package artifacts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/test/repository"
)

// Root returns the directory of all artifacts, or "" if none are kept.
func Root() string { return os.Getenv("ROCKPOOL_ARTIFACTS") }

// Package returns the path of a test's package below the module's root, for example "local/image".
func Package(t testing.TB) string {
	t.Helper()
	here, err := os.Getwd() // a test runs in its package's directory
	if err != nil {
		t.Fatal(err)
	}
	root, err := repository.Root()
	if err != nil {
		return filepath.Base(here) // the binary runs without sources, for example in a virtual machine
	}
	path, _ := filepath.Rel(root, here)
	return path
}

// Keep writes a file to the test's own directory, replaces one of the same name, and returns its
// path. It returns "" if no artifacts are kept, or if the write failed, which fails the test.
func Keep(t testing.TB, name string, content []byte) string {
	t.Helper()
	if Root() == "" {
		return ""
	}
	dir := filepath.Join(Root(), Package(t), strings.NewReplacer("/", "-", ":", "-").Replace(t.Name()))
	path := filepath.Join(dir, name)
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.WriteFile(path, content, 0o644)
	}
	if err != nil {
		t.Errorf("keep an artifact: %v", err)
		return ""
	}
	return path
}
