package main

import (
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rockpool/rockpool/agent"
)

// The test starts more commands than fit in a runner. Each is refused or runs to its end, and the
// agent survives.
func TestFullRunnerRefusesCommands(t *testing.T) {
	b := newBed(t, 64)
	const many = 500
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			if what := b.attempt(t, "many-"+strconv.Itoa(i)); what != "exit 0" && !strings.HasPrefix(what, string(agent.ErrTooMany)) {
				t.Error(what)
			}
		})
	}
	all.Wait()
	if r := b.run(t, "echo", "usable"); r.stdout != "usable\n" {
		t.Errorf("afterwards: %+v", r)
	}
}

// An agent must keep working when commands have taken all its processes. The Go runtime aborts a
// program that can't start a thread.
func TestAgentWorksInAFullRunner(t *testing.T) {
	b := newBed(t, 60)
	s, err := b.session(t, agent.Start{ID: "fill", Env: testEnv, Argv: []string{"python3", "-c", `
import os, signal
told = False
while True:
    try:
        if os.fork() == 0: signal.pause()
    except BlockingIOError:
        if not told: print("full", flush=True)
        told = True
`}})
	if err != nil {
		t.Fatal(err)
	}
	waitForOutput(t, s)
	var all sync.WaitGroup
	for i := range 1000 {
		all.Go(func() {
			if what := b.attempt(t, "more-"+strconv.Itoa(i)); !strings.HasPrefix(what, string(agent.ErrTooMany)) {
				t.Error(what)
			}
		})
	}
	all.Wait()
	if err := s.Kill(0); err != nil {
		t.Fatal(err)
	}
	b.finish(t, s)
	if r := b.run(t, "echo", "usable"); r.stdout != "usable\n" {
		t.Errorf("afterwards: %+v", r)
	}
}

// attempt runs true, and describes the result.
func (b *bed) attempt(t testing.TB, id string) string {
	s, err := agent.StartExecution(t.Context(), b.dial(t), agent.Start{ID: id, Argv: []string{"true"}, Env: testEnv})
	var refused *agent.Error
	if errors.As(err, &refused) {
		return string(refused.Code) + " " + refused.Message
	}
	if err != nil {
		return err.Error()
	}
	defer func() { _ = s.Close() }()
	for {
		event, err := s.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			return err.Error()
		}
		if event.Kind == agent.KindExited {
			_ = s.Settled()
			return "exit " + strconv.Itoa(event.Exit.Code) + event.Exit.Signal
		}
	}
}
