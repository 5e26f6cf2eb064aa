package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

// A claiming is a wish for a runner.
type claiming struct {
	environment string
	timeout     int           // seconds without use after which it is released
	wait        time.Duration // for a runner
	key         string        // "": a new one
	labels      []label
	brief       bool // what is claimed goes by itself soon: no error need tell the key
}

type label struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// claim gets a runner's id, and says what it waits for if that takes a while.
func claim(ctx context.Context, s Streams, c *client.Client, w claiming) (string, error) {
	const mutation = `mutation($in: ClaimRunnerInput!) { claimRunner(input: $in) { runner { id } } }`
	if w.key == "" {
		w.key = uuid.NewString()
	}
	input := map[string]any{"environmentId": w.environment, "waitFor": int(w.wait / time.Second),
		"inactivityTimeout": w.timeout, "idempotencyKey": w.key, "labels": w.labels}
	var out struct {
		ClaimRunner struct{ Runner struct{ ID string } }
	}
	claimed := make(chan error, 1)
	go func() {
		err := asking(ctx, c, w.wait+serverPatience, mutation, map[string]any{"in": input}, &out)
		if err != nil && client.Passing(err) && !errors.Is(err, errNoServer) && !w.brief {
			err = fmt.Errorf("%w; whether a runner was claimed isn't known: --key %s claims the same one", err, w.key)
		}
		claimed <- err
	}()
	select {
	case err := <-claimed:
		return out.ClaimRunner.Runner.ID, err
	case <-time.After(silence):
	}
	explain(ctx, s, c, w.environment)
	err := <-claimed
	return out.ClaimRunner.Runner.ID, err
}

// explain says what a claim waits for.
func explain(ctx context.Context, s Streams, c *client.Client, environment string) {
	const query = `query($id: ID!) { environment(id: $id) { pool { starting reason } } }`
	var out struct {
		Environment *struct {
			Pool struct {
				Starting int
				Reason   string
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, goodbye)
	defer cancel()
	if err := c.Ask(ctx, query, map[string]any{"id": environment}, &out); err != nil || out.Environment == nil {
		return // the claim's own error says more
	}
	why := out.Environment.Pool.Reason
	if why == "" {
		why = "all are in use"
		if out.Environment.Pool.Starting > 0 {
			why = "one is starting"
		}
	}
	_, _ = fmt.Fprintf(s.Err, "rockpool: waiting for a runner of %s (%s)\n", plain(environment), plain(why))
}

// release ends a runner; one that is gone is no error.
func release(ctx context.Context, c *client.Client, runner string) error {
	const mutation = `mutation($id: ID!) { releaseRunner(id: $id) { released } }`
	err := c.Ask(ctx, mutation, map[string]any{"id": runner}, nil)
	var gone *client.Error
	if errors.As(err, &gone) && gone.Extensions.Code == runtime.CodeRunnerGone {
		return nil
	}
	return err
}
