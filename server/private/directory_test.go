package private

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAnUnusableDirectoryNamesTheSetting(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := lockParent(t.Context(), filepath.Join(file, "below"), nil); err == nil || !strings.Contains(err.Error(), "not a directory; set ROCKPOOL_DATA to a path in a directory that you can write to") {
		t.Error(err)
	}
}
