package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/runtime"
)

// Bounds of the wait for an agent's answer. A new agent may wait for CPU on a busy machine. One
// that ran all the time needs less, and delays the server's start.
const (
	answerWithin      = 10 * time.Second
	answerAgainWithin = 5 * time.Second
	warmWithin        = 2 * time.Minute // loading the interpreter
)

// Ready maps the runner's ports, waits for its agent, and preloads the interpreter of its
// environment. An error means that the runner is unusable. A restored one has its interpreter, and
// lives on without its ports: those are mapped again later.
func (s *Sandbox) Ready(ctx context.Context, restored bool) error {
	if err := s.network.Map(restored); err != nil {
		return err
	}
	within := answerWithin
	if restored {
		within = answerAgainWithin
	}
	answer, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := s.Ping(answer); err != nil {
		message := "its agent ended immediately or didn't answer; the server's log says more"
		if errors.Is(err, context.DeadlineExceeded) {
			message = "its agent wasn't ready in time: the machine is too busy, or its CPU limit too low"
		}
		return &sandbox.Failure{Message: message, Err: fmt.Errorf("ping its agent: %w", err)}
	}
	if s.config.Environment.Warm == nil || restored {
		return nil
	}
	ctx, cancel = context.WithTimeout(ctx, warmWithin)
	defer cancel()
	return s.warm(ctx)
}

// Ping connects to the runner's agent, and returns nil once it answers.
func (s *Sandbox) Ping(ctx context.Context) error {
	conn, err := s.config.Host.Dial(ctx, s.config.ID)
	if err != nil {
		return err
	}
	_, err = agent.PingAgent(ctx, conn)
	return err
}

// warm loads the interpreter. Its error explains to clients why that failed.
func (s *Sandbox) warm(ctx context.Context) error {
	variables, defaults := s.config.Environment.CommandVariables(false, false, nil)
	conn, err := s.config.Host.Dial(ctx, s.config.ID)
	if err == nil {
		var warmed agent.Warmed
		warmed, err = agent.WarmAgent(ctx, conn, agent.Warm{
			Interpreter: agent.InterpreterPython, Modules: s.config.Environment.Warm.Modules, Env: variables, Defaults: defaults,
		})
		if err == nil {
			loaded := runtime.Loaded{Version: agent.Shorten(warmed.Version), Memory: max(warmed.Memory, 0)}
			s.config.Show(func(shown *runtime.Runner) { shown.Loaded = &loaded })
			return nil
		}
	}
	message := "its interpreter couldn't be loaded; the server's log says more"
	known, refused := errors.AsType[*agent.Error](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		message = fmt.Sprintf("its interpreter wasn't loaded within %s", warmWithin)
	case refused && known.Field == "modules":
		message = fmt.Sprintf("the module %s of warm.modules %s", known.Path, known.Message)
	case refused:
		message = fmt.Sprintf("its interpreter (warm.interpreter %s) couldn't be loaded: %s", runtime.InterpreterPython, known.Error())
	}
	return &sandbox.Failure{Message: message, Err: fmt.Errorf("warm up: %w", err)}
}
