package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rockpool/rockpool/local/uids"
	"github.com/rockpool/rockpool/runtime/language"
)

// TestCachesAreOnlyTheServers: tenants run what is in a cache, so nobody else may make or change it.
func TestCachesAreOnlyTheServers(t *testing.T) {
	h := &Host{config: Config{Caches: t.TempDir()}}
	directory, err := h.cachesOf("go")
	if err != nil {
		t.Fatal(err)
	}
	defer directory.Close()
	if err := os.Chmod(directory.Name(), 0o770); err != nil {
		t.Fatal(err)
	}
	if again, err := h.cachesOf("go"); err == nil {
		_ = again.Close()
		t.Error("a directory that others may write to is used")
	}
	tool := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(tool, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	before, err := cacheKey(language.Cache{}, tool)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tool, []byte("of a newer version"), 0o700); err != nil {
		t.Fatal(err)
	}
	if after, err := cacheKey(language.Cache{}, tool); err != nil || after == before {
		t.Errorf("a new tool has the old cache: %v", err)
	}
	if err := os.Chmod(tool, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := cacheKey(language.Cache{}, tool); (err != nil) != uids.Root() {
		t.Errorf("a tool that others can change: %v", err)
	}
}
