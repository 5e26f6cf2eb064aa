package executor

import (
	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/cmd/confinement"
	"github.com/rockpool/rockpool/agent/cmd/launch"
	"github.com/rockpool/rockpool/agent/cmd/process"
)

func (e *executor) Warm(want agent.Warm) (agent.Warmed, error) {
	e.first.Do(e.prepare)
	want.Env = withVariables(e.withoutMissingLocale(want.Env, want.Defaults), e.threads)
	dir, err := e.WorkingDirectory("")
	if err != nil {
		return agent.Warmed{}, err
	}
	for _, name := range []string{"python3", "python"} {
		if found, err := e.LookUp(name, dir, want.Env); err == nil && len(found) > 0 {
			return e.starter.WarmUp(want, found[0])
		}
	}
	return agent.Warmed{}, &agent.Error{Code: agent.ErrNotFound, Field: "interpreter", Path: "python3", Message: "isn't in the runner's PATH"}
}

// zygoteLauncher returns a function whose result starts zygotes on their thread and, if commands
// have groups, in the shared group. It returns nil if none can be started.
func zygoteLauncher(c process.Config, thread *confinement.Thread) func() (launch.Func, error) {
	switch {
	case thread == nil:
		return nil
	case c.Groups != nil:
		return func() (launch.Func, error) { return c.Groups.Zygote(thread) }
	default:
		return func() (launch.Func, error) { return c.Launch.On(thread), nil }
	}
}
