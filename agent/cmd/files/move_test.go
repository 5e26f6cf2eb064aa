package files

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
)

func TestUnsupportedMovesAreExplained(t *testing.T) {
	for _, err := range []error{unix.EINVAL, unix.ENOSYS} {
		if e := moveError(agent.Move{From: "a", To: "b"}, err); e.Code != agent.ErrDenied || e.Field != "to" {
			t.Errorf("%v: got %+v, want %s for the field to", err, e, agent.ErrDenied)
		}
	}
}
