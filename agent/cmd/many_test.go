package main

import (
	"errors"
	"io"
	"strconv"
	"sync"
	"testing"

	"github.com/rockpool/rockpool/agent"
)

// TestManyAtOnce starts more than a runner has room for: each is refused, or
// runs to its end, and the agent lives.
func TestManyAtOnce(t *testing.T) {
	b := newBed(t, 64)
	const many = 500
	var all sync.WaitGroup
	var mu sync.Mutex
	ends := map[string]int{}
	for i := range many {
		all.Go(func() {
			what := b.attempt(t, "many-"+strconv.Itoa(i))
			mu.Lock()
			defer mu.Unlock()
			ends[what]++
		})
	}
	all.Wait()
	t.Log(ends)
	if r := b.run(t, "echo", "usable"); r.stdout != "usable\n" {
		t.Errorf("afterwards: %+v", r)
	}
}

// attempt runs true, and says what became of it.
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
