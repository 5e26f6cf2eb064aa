// Package runners measures runners: claims, starts, memory, recovery and scheduling.
package runners

import (
	"context"
	"encoding/json"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
)

// appendFloor describes the floor of all claims.
const appendFloor = "A POST of the same size to a process that writes it to a file, with an answer of the same size."

// Claim returns the rows of claims of a warm runner.
func Claim() []rows.Row {
	return []rows.Row{{
		Name:  "claim",
		What:  "The claim of a warm runner through GraphQL over HTTP, without other work. The claim is durable when it is answered.",
		Floor: appendFloor, Unit: measure.Milliseconds, Per: "claim",
		Goals: []measure.Goal{{Of: "p50", AtMost: 1}, {Of: "p99", AtMost: 10}},
		Open:  openClaim(1, 20),
	}, {
		Name:  "claim/burst",
		What:  "Twenty claims in sequence, while the pool replaces the claimed runners on the same CPUs.",
		Floor: appendFloor, Unit: measure.Milliseconds, Per: "claim",
		Open: openClaim(20, 1),
	}}
}

// openClaim makes this many claims in sequence, and repeats that in each round.
func openClaim(together, times int) func(context.Context, *bed.Bed) (rows.Pair, error) {
	return func(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
		idle := max(together, 2)
		s, err := b.Serve(ctx, idle, 0)
		if err != nil {
			return rows.Pair{}, err
		}
		post := b.Floors.Poster("/append", claimBody())
		row := func(ctx context.Context, r *measure.Round) error {
			return rows.Claims(ctx, s, r, idle, together, b.Ops(times))
		}
		floor := func(ctx context.Context, r *measure.Round) error {
			return rows.Repeat(b.Ops(times)*together, func() error { return r.Time(func() error { return post(ctx) }) })
		}
		return rows.Pair{Row: row, Floor: floor}, rows.Warm(ctx, row, floor)
	}
}

// claimBody returns the request that a claim sends, so that the floor's has the same size.
func claimBody() []byte {
	body, _ := json.Marshal(map[string]any{"operationName": "ClaimRunner", "query": client.ClaimRunner_Operation, "variables": map[string]any{"input": bed.ClaimInput()}})
	return body
}
