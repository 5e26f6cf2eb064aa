package session

import (
	"testing"

	"github.com/rockpool/rockpool/agent"
)

func TestShellCode(t *testing.T) {
	for _, test := range []struct {
		refused agent.Error
		want    int
	}{
		{agent.Error{Field: "argv", Code: agent.ErrNotFound}, 127},
		{agent.Error{Field: "dir", Code: agent.ErrNotFound}, 127},
		{agent.Error{Field: "argv", Code: agent.ErrDenied}, 126},
		{agent.Error{Field: "argv", Code: agent.ErrWrongType}, 126},
		{agent.Error{Field: "argv", Code: agent.ErrInvalid}, 126}, // too many arguments
		{agent.Error{Field: "argv", Code: agent.ErrTooMany}, 0},
		{agent.Error{Field: "argv", Code: agent.ErrInternal}, 0},
		{agent.Error{Field: "id", Code: agent.ErrNotFound}, 0},
	} {
		if got := shellCode(&test.refused); got != test.want {
			t.Errorf("%s %s: %d, want %d", test.refused.Field, test.refused.Code, got, test.want)
		}
	}
}
