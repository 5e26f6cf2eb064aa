package local

import (
	"context"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime"
)

// An asked launcher answers after something has happened.
type asked struct {
	launcher
	happens func()
	says    error
	times   int
}

func (a *asked) Ask(context.Context, string, helper.Request) error {
	a.times++
	a.happens()
	return a.says
}

// A runner is ended where the sandbox that it has is certainly not kept to its
// policy, and not for one that it had.
func TestChangedFilters(t *testing.T) {
	changed := &launch.RefusalError{Line: "its table is gone", Changed: true}
	nothing := func(*entry) {}
	for name, row := range map[string]struct {
		before, meanwhile func(e *entry)
		says              error
		asked             int
		ended             bool
	}{
		"as it was made":          {nothing, nothing, nil, 1, false},
		"nobody can tell":         {nothing, nothing, &launch.RefusalError{Line: "fork: resource temporarily unavailable"}, 1, false},
		"changed":                 {nothing, nothing, changed, 1, true},
		"not made yet":            {func(e *entry) { e.fenced = 0 }, nothing, changed, 0, false},
		"being removed":           {func(e *entry) { e.removing = true }, nothing, changed, 0, false},
		"removed meanwhile":       {nothing, func(e *entry) { e.removing = true }, changed, 1, false},
		"gone meanwhile":          {nothing, func(e *entry) { e.runner.State = runtime.RunnerGone }, changed, 1, false},
		"destroyed meanwhile":     {nothing, func(e *entry) { e.fenced = 0 }, changed, 1, false},
		"started again meanwhile": {nothing, func(e *entry) { e.fenced = 2 }, changed, 1, false},
	} {
		core, logged := observer.New(zap.ErrorLevel)
		e := &entry{fenced: 1, task: taskrunner.New(taskrunner.Config{}, taskrunner.State{Phase: taskrunner.Running})}
		e.runner.State, e.runner.Environment.Network.Access = runtime.RunnerIdle, true
		c := &Cluster{log: zap.New(core), entries: map[runtime.RunnerID]*entry{"a": e}, config: Config{Network: &Network{Offer: network.Offer{}}}}
		launcher := &asked{says: row.says, happens: func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			row.meanwhile(e)
		}}
		c.launcher = launcher
		row.before(e)
		c.verifyNetworks(t.Context(), all)
		if launcher.times != row.asked || (logged.Len() > 0) != row.ended {
			t.Errorf("%s: asked %d times, ended: %v", name, launcher.times, logged.All())
		}
	}
}
