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
	if _, err := lockParent(t.Context(), filepath.Join(file, "below"), nil); err == nil || !strings.Contains(err.Error(), "ROCKPOOL_DATA") {
		t.Errorf("got %v, want an error that names ROCKPOOL_DATA", err)
	}
}
