package servers

import (
	"context"
	"fmt"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
)

// The size of the server of the row with many tenants.
const (
	manyTenants = 50
	manyTokens  = 1000
)

// Tenants returns the row of a server with many tenants.
func Tenants() []rows.Row {
	return []rows.Row{{
		Name:  "flat/claim/tenants",
		What:  fmt.Sprintf("The claim of a warm runner with a client's token, on a server with %d tenants and %d tokens.", manyTenants, manyTokens),
		Floor: "The same on a second server without tokens.",
		Unit:  measure.Milliseconds, Per: "claim", Goals: []measure.Goal{{Of: "p50", AtMost: 1}, {Of: "ratio", AtMost: 1.5}},
		Open: openTenants,
	}}
}

// openTenants prepares two servers that differ only in their tenants and tokens.
func openTenants(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
	const idle = 2
	var probes [2]rows.Probe
	for i, prepare := range []func(context.Context, *bed.Server) error{serveMany, func(context.Context, *bed.Server) error { return nil }} {
		s, err := b.Serve(ctx, idle, 0)
		if err != nil {
			return rows.Pair{}, err
		}
		if err := prepare(ctx, s); err != nil {
			return rows.Pair{}, err
		}
		probes[i] = func(ctx context.Context, r *measure.Round) error {
			return rows.Claims(ctx, s, r, idle, 1, b.Ops(20))
		}
	}
	return rows.Pair{Row: probes[0], Floor: probes[1]}, rows.Warm(ctx, probes[:]...)
}

// serveMany makes the tenants and the tokens, shares the environment, and gives the server's client
// a token of one tenant.
func serveMany(ctx context.Context, s *bed.Server) error {
	if err := share(ctx, s); err != nil {
		return err
	}
	for i := range manyTenants - 1 { // the default tenant exists
		if err := putTenant(ctx, s, tenant(i)); err != nil {
			return err
		}
	}
	secret := ""
	for i := range manyTokens - 1 {
		var err error
		if secret, err = tokenOf(ctx, s, tenant(i%(manyTenants-1))); err != nil {
			return err
		}
	}
	s.CloseIdle()
	s.Client = client.New(s.URL).WithToken(secret)
	return nil
}

func tenant(i int) string { return fmt.Sprintf("tenant-%d", i) }
