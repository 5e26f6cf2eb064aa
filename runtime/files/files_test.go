package files

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/rockpool/rockpool/runtime"
)

// unreachable is a runner that can't be used, or whose agent can't be dialled.
type unreachable struct {
	use, dial error
	uses      int // now
}

func (u *unreachable) Runner(id runtime.RunnerID) (runtime.Runner, bool) {
	return runtime.Runner{ID: id, State: runtime.RunnerClaimed}, true
}

func (u *unreachable) Use(context.Context, runtime.RunnerID) (func(), error) {
	if u.use != nil {
		return nil, u.use
	}
	u.uses++
	return func() { u.uses-- }, nil
}

func (u *unreachable) Dial(context.Context, runtime.RunnerID) (net.Conn, error) { return nil, u.dial }

// TestUnreachableAgentIsUnavailable checks that an error of the dial is reported as
// CLUSTER_UNAVAILABLE, and earlier errors unchanged.
func TestUnreachableAgentIsUnavailable(t *testing.T) {
	cause := errors.New("a cause")
	calls := map[string]func(a *Access) error{
		"list": func(a *Access) error { _, err := a.Files(t.Context(), "r", "", false); return err },
		"open": func(a *Access) error { _, _, err := a.OpenFile(t.Context(), "r", "f", 0); return err },
		"update": func(a *Access) error {
			_, err := a.UpdateFiles(t.Context(), "r", []string{"f"}, "write", nil)
			return err
		},
	}
	for name, call := range calls {
		if err := call(New(&unreachable{use: cause})); !errors.Is(err, cause) || runtime.CodeOf(err) == runtime.CodeClusterUnavailable {
			t.Errorf("%s, before the agent was asked: %v", name, err)
		}
		u := &unreachable{dial: cause}
		if err := call(New(u)); !errors.Is(err, cause) || runtime.CodeOf(err) != runtime.CodeClusterUnavailable || u.uses != 0 {
			t.Errorf("%s, with an agent that can't be reached: %v, %d uses stay", name, err, u.uses)
		}
	}
}
