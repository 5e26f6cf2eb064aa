package servers

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
)

// The parameters of the row fair/tenants.
const (
	crowdPool    = 5
	crowdTenants = 20
	crowdClaims  = 25 // per tenant
)

// openCrowd prepares the row fair/tenants. Its floor comes from the row's own last round.
func openCrowd(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
	s, err := b.Serve(ctx, crowdPool, 0)
	if err != nil {
		return rows.Pair{}, err
	}
	if err := share(ctx, s); err != nil {
		return rows.Pair{}, err
	}
	var clients []*client.Client
	for i := range crowdTenants {
		one, err := clientsOf(ctx, s, tenant(i), 1)
		if err != nil {
			return rows.Pair{}, err
		}
		clients = append(clients, one...)
	}
	var least, first, last time.Duration // of the last round: the lowest mean wait, and when the first and the last tenant had all claims
	var spreads []float64                // last divided by first, of each round
	row := func(ctx context.Context, r *measure.Round) error {
		waits, err := crowd(ctx, s, clients, b.Ops(crowdClaims))
		if err != nil {
			return err
		}
		var means, ends []time.Duration
		for _, of := range waits {
			var sum time.Duration
			for _, wait := range of {
				sum += wait
			}
			means = append(means, sum/time.Duration(len(of)))
			ends = append(ends, slices.Max(of))
		}
		least, first, last = slices.Min(means), slices.Min(ends), slices.Max(ends)
		spreads = append(spreads, last.Seconds()/first.Seconds())
		r.Add(milliseconds(slices.Max(means)))
		return s.Settle(ctx, crowdPool)
	}
	floor := func(_ context.Context, r *measure.Round) error {
		r.Add(milliseconds(least))
		return nil
	}
	note := func() string {
		return fmt.Sprintf("the last runner of each tenant came after %s to %s in the last round; in the worst ×%s",
			first.Round(time.Millisecond), last.Round(time.Millisecond), measure.Figure(slices.Max(spreads)))
	}
	return rows.Pair{Row: row, Floor: floor, Rounds: 2, Note: note}, nil
}

// crowd makes n claims with each client in sequence while the cluster is drained. It then ends the
// drain, and returns how long each claim waits from that moment. Runners are released immediately.
func crowd(ctx context.Context, s *bed.Server, clients []*client.Client, n int) ([][]time.Duration, error) {
	if _, err := client.DrainCluster(ctx, s, true); err != nil {
		return nil, err
	}
	served := make([][]time.Time, len(clients))
	group, inner := errgroup.WithContext(ctx)
	for i, c := range clients {
		served[i] = make([]time.Time, n)
		for j := range n {
			group.Go(func() error {
				runner, err := client.Claim(inner, c, bed.ClaimInput())
				served[i][j] = time.Now()
				if err != nil {
					return err
				}
				return client.Release(inner, c, runner)
			})
		}
		if err := bed.Until(inner, func() (bool, error) {
			waiting, err := waiting(inner, s)
			return waiting == (i+1)*n, err
		}); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	if _, err := client.DrainCluster(ctx, s, false); err != nil {
		return nil, err
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	waits := make([][]time.Duration, len(clients))
	for i, times := range served {
		for _, at := range times {
			waits[i] = append(waits[i], at.Sub(began))
		}
	}
	return waits, nil
}

// waiting returns the number of waiting claims.
func waiting(ctx context.Context, s *bed.Server) (int, error) {
	var out struct {
		Environment struct{ Pool struct{ Waiting int } }
	}
	err := s.Do(ctx, `query($id: ID!) { environment(id: $id) { pool { waiting } } }`, map[string]any{"id": bed.Environment}, &out)
	return out.Environment.Pool.Waiting, err
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
