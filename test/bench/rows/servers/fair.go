package servers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
)

// The parameters of the row fair/flood.
const (
	floodPool    = 8
	floodClients = 200 // of the tenant that floods
	otherClients = 5   // of the other tenant; each runs once a second
	floodSeconds = 6   // per round, with the flood and without it
)

// Fair returns the rows of tenants that use one environment concurrently.
func Fair() []rows.Row {
	return []rows.Row{{
		Name: "fair/flood",
		What: fmt.Sprintf("From the claim of a runner to the end of `true` in it: %d clients of one tenant, each once a second, "+
			"while %d clients of another tenant claim, run `true` and release without a pause, on the same pool of %d.", otherClients, floodClients, floodPool),
		Floor: "The same without the other tenant's clients.",
		Unit:  measure.Milliseconds, Goals: []measure.Goal{{Of: "p99 ratio", AtMost: 2}},
		Open: openFlood,
	}, {
		Name: "fair/tenants",
		What: fmt.Sprintf("The mean wait of the tenant that waits longest. %d tenants make %d claims each, one tenant after the other, while the cluster is drained. "+
			"When the drain ends, a pool of %d serves them, and each runner is released immediately.", crowdTenants, crowdClaims, crowdPool),
		Floor: "The mean wait of the tenant that waits least.",
		Unit:  measure.Milliseconds, Goals: []measure.Goal{{Of: "ratio", AtMost: 1.2}},
		Open: openCrowd,
	}}
}

// openFlood prepares a tenant that uses the server regularly, and another one that floods it during
// the row only.
func openFlood(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
	s, err := b.Serve(ctx, floodPool, 0)
	if err != nil {
		return rows.Pair{}, err
	}
	if err := share(ctx, s); err != nil {
		return rows.Pair{}, err
	}
	others, err := clientsOf(ctx, s, tenant(0), otherClients)
	if err != nil {
		return rows.Pair{}, err
	}
	f := &flood{}
	if f.clients, err = clientsOf(ctx, s, tenant(1), b.Ops(floodClients)); err != nil {
		return rows.Pair{}, err
	}
	n := b.Ops(floodSeconds * otherClients)
	floor := func(ctx context.Context, r *measure.Round) error {
		return errors.Join(regularly(ctx, others, n, r), s.Settle(ctx, floodPool))
	}
	row := func(ctx context.Context, r *measure.Round) error {
		return errors.Join(f.during(ctx, func(ctx context.Context) error { return regularly(ctx, others, n, r) }), s.Settle(ctx, floodPool))
	}
	note := func() string {
		return fmt.Sprintf("the flood ran %s of `true` a second meanwhile", measure.Figure(float64(f.counted)/f.took.Seconds()))
	}
	return rows.Pair{Row: row, Floor: floor, Rounds: 4, Note: note}, useRunner(ctx, others[0], func() {})
}

// useRunner claims a runner, runs `true` in it, calls ended and releases it.
func useRunner(ctx context.Context, c *client.Client, ended func()) error {
	runner, err := client.Claim(ctx, c, bed.ClaimInput())
	if err != nil {
		return err
	}
	id, err := client.Start(ctx, c, client.StartExecutionInput{RunnerId: runner, Command: []string{"true"}})
	if err != nil {
		return err
	}
	end, err := client.Await(ctx, c, id)
	if err != nil {
		return err
	}
	if end.ExitCode == nil || *end.ExitCode != 0 {
		return fmt.Errorf("execution %s: %s %s", id, end, end.Message)
	}
	ended()
	return client.Release(ctx, c, runner)
}

// regularly uses n runners in all. Each client starts one per second, even if its previous one
// hasn't ended.
func regularly(ctx context.Context, clients []*client.Client, n int, r *measure.Round) error {
	tick := time.NewTicker(time.Second / time.Duration(len(clients)))
	defer tick.Stop()
	group, ctx := errgroup.WithContext(ctx)
	var mu sync.Mutex // guards r
	for i := range n {
		began := time.Now()
		group.Go(func() error {
			return useRunner(ctx, clients[i%len(clients)], func() {
				took := time.Since(began)
				mu.Lock()
				defer mu.Unlock()
				r.Add(milliseconds(took))
			})
		})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return group.Wait()
		}
	}
	return group.Wait()
}

// A flood is one tenant's clients that use runners without a pause.
type flood struct {
	clients []*client.Client
	done    atomic.Int64

	counted int64 // number of uses during took
	took    time.Duration
}

// during calls do once the flood has used up the pool, and ends the flood afterwards.
func (f *flood) during(ctx context.Context, do func(ctx context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	var ended atomic.Bool
	defer ended.Store(true)
	start := f.done.Load()
	for _, c := range f.clients {
		group.Go(func() error {
			for !ended.Load() {
				if err := useRunner(ctx, c, func() {}); err != nil {
					return err
				}
				f.done.Add(1)
			}
			return nil
		})
	}
	err := bed.Until(ctx, func() (bool, error) { return f.done.Load() >= start+2*floodPool, nil })
	if err == nil {
		before, began := f.done.Load(), time.Now()
		err = do(ctx)
		f.counted += f.done.Load() - before
		f.took += time.Since(began)
	}
	ended.Store(true)
	return errors.Join(err, group.Wait())
}
