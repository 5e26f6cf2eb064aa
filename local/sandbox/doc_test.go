package sandbox

import (
	"strings"
	"testing"
)

func TestBinarySaysWhatToDo(t *testing.T) {
	if data, err := Binary(); err != nil && !strings.Contains(err.Error(), `"make build"`) || err == nil && len(data) == 0 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}
