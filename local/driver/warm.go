package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime"
)

// warmWithin bounds how long a runner may take to load its interpreter.
const warmWithin = 2 * time.Minute

// A warmHook preloads the interpreter of the environment in a new runner, before the runner is
// ready.
type warmHook struct{ d *Driver }

func (h *warmHook) Name() string { return "warm" }

// Poststart implements taskrunner.Poststarter. A runner whose interpreter can't be loaded is
// unusable.
func (h *warmHook) Poststart(ctx context.Context, request taskrunner.PoststartRequest, response *taskrunner.PoststartResponse) error {
	want := h.d.Environment.Warm
	if want == nil || request.Restored { // a restored runner has it loaded
		return nil
	}
	variables, defaults := h.d.Environment.CommandVariables(false, false, nil)
	ctx, cancel := context.WithTimeout(ctx, warmWithin)
	defer cancel()
	conn, err := h.d.Host.Dial(ctx, h.d.ID)
	if err == nil {
		var warmed agent.Warmed
		warmed, err = agent.WarmAgent(ctx, conn, agent.Warm{
			Interpreter: agent.InterpreterPython, Modules: want.Modules, Env: variables, Defaults: defaults,
		})
		if err == nil {
			h.d.Loaded(runtime.Loaded{Version: agent.Shorten(warmed.Version), Memory: max(warmed.Memory, 0)})
			return nil
		}
	}
	response.Unusable = notWarm(err)
	return nil
}

// notWarm returns the failure that explains to clients why an interpreter wasn't loaded.
func notWarm(err error) *taskrunner.Failure {
	message := "its interpreter couldn't be loaded; the server's log says more"
	var known *agent.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		message = fmt.Sprintf("its interpreter wasn't loaded within %s", warmWithin)
	case errors.As(err, &known) && known.Field == "modules":
		message = fmt.Sprintf("the module %s of warm.modules %s", known.Path, known.Message)
	case errors.As(err, &known):
		message = fmt.Sprintf("its interpreter (warm.interpreter %s) couldn't be loaded: %s", runtime.InterpreterPython, known.Error())
	}
	return &taskrunner.Failure{Message: message, Err: fmt.Errorf("warm up: %w", err)}
}
