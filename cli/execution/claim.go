package execution

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

// A Request is a request for a runner.
type Request struct {
	Environment string
	Timeout     int           // seconds without use after which the runner is released
	Wait        time.Duration // how long to wait for a runner
	Key         string        // idempotency key; empty for a new one, unless there is a holder
	Holder      *string       // nil for none
	Labels      []client.LabelInput
	brief       bool // the server releases the runner soon anyway: errors don't mention the key
}

// input returns the request for the API. It has a key or a holder, so repeating it is safe.
func (r *Request) input() client.ClaimRunnerInput {
	if r.Key == "" && r.Holder == nil {
		r.Key = uuid.NewString()
	}
	return client.ClaimRunnerInput{
		EnvironmentId: r.Environment, WaitFor: new(int(r.Wait / time.Second)), InactivityTimeout: &r.Timeout, IdempotencyKey: &r.Key, Holder: r.Holder, Labels: r.Labels,
	}
}

// unknown adds instructions for claiming again to an error that leaves open whether a runner was claimed.
func (r *Request) unknown(err error) error {
	if err != nil && client.Passing(err) && !errors.Is(err, command.ErrNoServer) && !r.brief {
		again := "--key " + r.Key
		if r.Holder != nil {
			again = "the same --holder"
		}
		err = fmt.Errorf("%w; a runner may have been claimed: repeat the command with %s to get it", err, again)
	}
	return err
}

// ClaimLater returns a ticket for a runner. It returns immediately, even if a runner is idle.
func ClaimLater(ctx context.Context, c *client.Client, r Request) (client.Ticket, error) {
	input := r.input()
	input.Wait = new(client.ClaimWaitTicket)
	out, err := client.ClaimTicket(ctx, command.Patient(c, command.Patience), input)
	if err != nil {
		return client.Ticket{}, command.UnknownEnvironment(ctx, c, r.Environment, r.unknown(err))
	}
	return out.ClaimRunner.Ticket, nil
}

// Claim claims a runner and returns its id. If that takes longer than quietPeriod, it prints to
// errs what it waits for. It also prints a line if the request's holder already had the runner.
func Claim(ctx context.Context, errs io.Writer, c *client.Client, r Request) (string, error) {
	input := r.input()
	type answer struct {
		runner  string
		resumed bool
		err     error
	}
	claimed := make(chan answer, 1)
	go func() {
		claim := client.ClaimOrResume
		if r.Wait > longestCall {
			claim = claimByTicket
		}
		runner, resumed, err := claim(ctx, command.Patient(c, r.Wait+command.Patience), input)
		claimed <- answer{runner, resumed, command.UnknownEnvironment(ctx, c, r.Environment, r.unknown(err))}
	}()
	var got answer
	select {
	case got = <-claimed:
	case <-time.After(quietPeriod):
		explain(ctx, errs, c, r.Environment)
		got = <-claimed
	}
	if got.resumed {
		_, _ = fmt.Fprintf(errs, "rockpool: resumed runner %s of this holder\n", output.Plain(got.runner))
	}
	return got.runner, got.err
}

// longestCall is how long one call waits at most: many proxies end a call after 60 s.
const longestCall = 45 * time.Second

// pollEvery is the interval of the queries for a ticket.
const pollEvery = 500 * time.Millisecond

// claimByTicket is client.ClaimOrResume for a long wait. The claim keeps its position in the queue, though no
// call is long.
func claimByTicket(ctx context.Context, c client.Sender, input client.ClaimRunnerInput) (runner string, resumed bool, err error) {
	input.Wait = new(client.ClaimWaitTicket)
	out, err := client.ClaimTicket(ctx, c, input)
	if err != nil {
		return "", false, err
	}
	defer func() {
		if err != nil && ctx.Err() != nil {
			leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
			defer cancel()
			_, _ = client.CancelTicket(leaving, c, out.ClaimRunner.Ticket.Id) // otherwise the server cancels it in 30 s
		}
	}()
	again := time.NewTicker(pollEvery)
	defer again.Stop()
	for t := out.ClaimRunner.Ticket; ; {
		switch {
		case t.State != client.TicketStateWaiting && t.Runner != nil:
			return t.Runner.Id, t.Resumed, nil
		case t.State != client.TicketStateWaiting:
			ended := &client.Error{Message: "the runner of this claim is gone: claim again"}
			if t.Message != nil {
				ended.Message = *t.Message
			}
			if t.Code != nil {
				ended.Extensions.Code = runtime.Code(*t.Code)
			}
			return "", false, ended
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return "", false, ctx.Err()
		}
		got, err := client.GetTicket(ctx, c, t.Id)
		if err != nil {
			return "", false, err
		}
		t = got.Ticket
	}
}

// explain prints what a claim waits for.
func explain(ctx context.Context, errs io.Writer, c *client.Client, environment string) {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	out, err := client.GetPool(ctx, c, environment)
	if err != nil {
		return // the claim's error says more
	}
	pool := out.Environment.Pool
	why := pool.Reason
	if why == "" {
		why = "all runners are in use"
		if pool.Starting > 0 {
			why = "a runner is starting"
		}
	}
	_, _ = fmt.Fprintf(errs, "rockpool: waiting for a runner of %s (%s)\n", output.Plain(environment), output.Plain(why))
}
