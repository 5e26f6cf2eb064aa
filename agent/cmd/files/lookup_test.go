package files

import (
	"testing"

	"github.com/rockpool/rockpool/agent"
)

// A name without a slash that isn't in PATH is a missing command, however many directories PATH
// has.
func TestMissingCommandsAreNotFound(t *testing.T) {
	f := &Files{}
	for _, test := range [][2]string{{"python3", "/nonesuch"}, {"python3", "/nonesuch:/proc"}, {"python3", ""}, {"./python3", "/bin"}} {
		_, err := f.LookUp(test[0], "/nonesuch", []string{"PATH=" + test[1]})
		if e, is := err.(*agent.Error); !is || e.Code != agent.ErrNotFound || e.Field != "argv" { //nolint:errorlint // it isn't wrapped
			t.Errorf("%q: got %v, want %s for argv", test, err, agent.ErrNotFound)
		}
	}
}
