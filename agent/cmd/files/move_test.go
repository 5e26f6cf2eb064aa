package files

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

func TestUnsupportedMovesAreExplained(t *testing.T) {
	for _, err := range []error{unix.EINVAL, unix.ENOSYS} {
		if e := moveError(agent.Move{From: "a", To: "b"}, err); e.Code != agent.ErrDenied || e.Field != "to" || !strings.Contains(e.Message, "never replace") {
			t.Errorf("%v: %+v", err, e)
		}
	}
}
