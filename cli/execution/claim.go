package execution

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/rockpool/rockpool/cli/advice"
	"github.com/rockpool/rockpool/cli/connection"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

// A Request asks for a runner.
type Request struct {
	Environment string
	Timeout     int           // seconds without use after which it is released
	Wait        time.Duration // for a runner
	Key         string        // "": a new one, unless there is a holder
	Holder      *string       // nil: none
	Labels      []client.LabelInput
	brief       bool // what is claimed goes by itself soon: no error need tell the key
}

// input returns the request as the API takes it, with a key or a holder.
func (r *Request) input() client.ClaimRunnerInput {
	if r.Key == "" && r.Holder == nil {
		r.Key = uuid.NewString()
	}
	return client.ClaimRunnerInput{
		EnvironmentId: r.Environment, WaitFor: new(int(r.Wait / time.Second)), InactivityTimeout: &r.Timeout, IdempotencyKey: &r.Key, Holder: r.Holder, Labels: r.Labels,
	}
}

// unknown adds how to claim again to an error after which a runner may be claimed.
func (r *Request) unknown(err error) error {
	if err != nil && client.Passing(err) && !errors.Is(err, connection.ErrNoServer) && !r.brief {
		again := "--key " + r.Key
		if r.Holder != nil {
			again = "the same --holder"
		}
		err = fmt.Errorf("%w; whether a runner was claimed isn't known: %s claims the same one", err, again)
	}
	return err
}

// ClaimLater returns a ticket for a runner: at once, also where a runner is idle.
func ClaimLater(ctx context.Context, c *client.Client, r Request) (client.Ticket, error) {
	input := r.input()
	input.Wait = new(client.ClaimWaitTicket)
	out, err := client.ClaimTicket(ctx, connection.Patient(c, connection.Patience), input)
	if err != nil {
		return client.Ticket{}, advice.Unknown(ctx, c, r.Environment, r.unknown(err))
	}
	return out.ClaimRunner.Ticket, nil
}

// Claim gets a runner's id, and says on errs what it waits for if that takes a while, and whether the
// request's holder has had the runner before.
func Claim(ctx context.Context, errs io.Writer, c *client.Client, r Request) (string, error) {
	input := r.input()
	type answer struct {
		runner  string
		resumed bool
		err     error
	}
	claimed := make(chan answer, 1)
	go func() {
		runner, resumed, err := client.ClaimOrResume(ctx, connection.Patient(c, r.Wait+connection.Patience), input)
		claimed <- answer{runner, resumed, advice.Unknown(ctx, c, r.Environment, r.unknown(err))}
	}()
	var got answer
	select {
	case got = <-claimed:
	case <-time.After(silence):
		explain(ctx, errs, c, r.Environment)
		got = <-claimed
	}
	if got.resumed {
		_, _ = fmt.Fprintf(errs, "rockpool: resumed %s, which this holder has had before\n", output.Plain(got.runner))
	}
	return got.runner, got.err
}

// explain says what a claim waits for.
func explain(ctx context.Context, errs io.Writer, c *client.Client, environment string) {
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
	_, _ = fmt.Fprintf(errs, "rockpool: waiting for a runner of %s (%s)\n", output.Plain(environment), output.Plain(why))
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
