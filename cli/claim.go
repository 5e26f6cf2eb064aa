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
	labels      []client.LabelInput
	brief       bool // what is claimed goes by itself soon: no error need tell the key
}

// claim gets a runner's id, and says what it waits for if that takes a while.
func claim(ctx context.Context, s Streams, c *client.Client, w claiming) (string, error) {
	if w.key == "" {
		w.key = uuid.NewString()
	}
	input := client.ClaimRunnerInput{
		EnvironmentId: w.environment, WaitFor: new(int(w.wait / time.Second)), InactivityTimeout: &w.timeout, IdempotencyKey: &w.key, Labels: w.labels,
	}
	var runner string
	claimed := make(chan error, 1)
	go func() {
		var err error
		runner, err = client.Claim(ctx, patient(c, w.wait+serverPatience), input)
		if err != nil && client.Passing(err) && !errors.Is(err, errNoServer) && !w.brief {
			err = fmt.Errorf("%w; whether a runner was claimed isn't known: --key %s claims the same one", err, w.key)
		}
		claimed <- err
	}()
	select {
	case err := <-claimed:
		return runner, err
	case <-time.After(silence):
	}
	explain(ctx, s, c, w.environment)
	err := <-claimed
	return runner, err
}

// explain says what a claim waits for.
func explain(ctx context.Context, s Streams, c *client.Client, environment string) {
	ctx, cancel := context.WithTimeout(ctx, goodbye)
	defer cancel()
	out, err := client.GetPool(ctx, c, environment)
	if err != nil {
		return // the claim's own error says more
	}
	pool := out.Environment.Pool
	why := pool.Reason
	if why == "" {
		why = "all are in use"
		if pool.Starting > 0 {
			why = "one is starting"
		}
	}
	_, _ = fmt.Fprintf(s.Err, "rockpool: waiting for a runner of %s (%s)\n", plain(environment), plain(why))
}

// release ends a runner; one that is gone is no error.
func release(ctx context.Context, c *client.Client, runner string) error {
	err := client.Release(ctx, c, runner)
	var gone *client.Error
	if errors.As(err, &gone) && gone.Extensions.Code == runtime.CodeRunnerGone {
		return nil
	}
	return err
}
