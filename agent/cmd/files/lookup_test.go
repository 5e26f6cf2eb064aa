package files

import (
	"testing"

	"github.com/rockpool/rockpool/agent"
)

// A name without a slash that isn't in PATH is a missing command, however many directories PATH
// has.
func TestMissingCommandsAreNotFound(t *testing.T) {
	f := &Files{}
	for path, says := range map[string]string{"/nonesuch": "command not found", "/nonesuch:/proc": "command not found", "": "command not found"} {
		_, err := f.LookUp("python3", "/", []string{"PATH=" + path})
		if e, is := err.(*agent.Error); !is || e.Message != says || e.Field != "argv" { //nolint:errorlint // it isn't wrapped
			t.Errorf("PATH=%s: %v", path, err)
		}
	}
	if _, err := f.LookUp("./python3", "/nonesuch", nil); err == nil || err.(*agent.Error).Message != "no such file or directory" { //nolint:errorlint // it isn't wrapped
		t.Error(err)
	}
}
