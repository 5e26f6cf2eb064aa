package namespaces

import (
	"testing"

	"github.com/rockpool/rockpool/runtime"
)

func TestPathsAreTheRuntimes(t *testing.T) {
	if Home != runtime.Home || Workspace != runtime.Workspace {
		t.Errorf("got %s and %s, want %s and %s", Home, Workspace, runtime.Home, runtime.Workspace)
	}
}
