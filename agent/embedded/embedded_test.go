package embedded_test

import (
	"strings"
	"testing"

	"github.com/rockpool/rockpool/agent/embedded"
)

func TestBinary(t *testing.T) {
	if _, err := embedded.Binary("pdp11"); err == nil || !strings.Contains(err.Error(), `"make build"`) {
		t.Errorf("error %v", err)
	}
	binary, err := embedded.Binary("amd64")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(binary), "\x7fELF") {
		t.Errorf("begins with %q", binary[:4])
	}
}
