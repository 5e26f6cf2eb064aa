package host

import (
	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/cmd/confinement"
	"github.com/rockpool/rockpool/agent/cmd/launch"
	"github.com/rockpool/rockpool/agent/cmd/process"
	"github.com/rockpool/rockpool/agent/cmd/warm"
)

// Warm implements [serve.Warmer].
func (h *host) Warm(want agent.Warm) (agent.Warmed, error) {
	h.first.Do(h.prepare)
	dir, err := h.WorkingDirectory("")
	if err != nil {
		return agent.Warmed{}, err
	}
	path, err := warm.Interpreter(func(name string) ([]string, error) { return h.LookUp(name, dir, want.Env) })
	if err != nil {
		return agent.Warmed{}, err
	}
	return h.starter.WarmUp(want, path)
}

// zygoteLauncher returns what starts zygotes on their thread: in the group that further commands
// share, where commands have groups. It returns nil where none can be started.
func zygoteLauncher(c process.Config, thread *confinement.Thread, fork func(group int) launch.Func) func() (launch.Func, error) {
	switch {
	case thread == nil:
		return nil
	case c.Groups != nil:
		return func() (launch.Func, error) { return c.Groups.Zygote(thread) }
	case c.Launch != nil && launch.CanFork():
		return func() (launch.Func, error) { return fork(launch.NoGroup).On(thread), nil }
	default:
		return func() (launch.Func, error) { return launch.Plain().On(thread), nil }
	}
}
