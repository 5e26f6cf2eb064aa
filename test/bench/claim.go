package main

import (
	"context"
	"encoding/json"

	"github.com/rockpool/rockpool/client"
)

const appendFloor = "A POST of the same size, to a process that writes it to a file and answers as much."

func claimRows() []Row {
	return []Row{{
		Name:  "claim",
		What:  "A warm runner is claimed through GraphQL over HTTP, while nothing else goes on; the claim is durable when it is answered.",
		Floor: appendFloor, Unit: Milliseconds, Per: "claim",
		Goals: []Goal{{Of: "p50", AtMost: 1}, {Of: "p99", AtMost: 10}},
		Open:  openClaim(1, 20),
	}, {
		Name:  "claim/burst",
		What:  "Twenty are claimed one after the other, while the pool makes new ones on the same CPUs for those that went.",
		Floor: appendFloor, Unit: Milliseconds, Per: "claim",
		Open: openClaim(20, 1),
	}}
}

// openClaim claims so many at a time, so often in a round.
func openClaim(together, times int) func(context.Context, *bed) (pair, error) {
	return func(ctx context.Context, b *bed) (pair, error) {
		idle := max(together, 2)
		s, err := b.serve(ctx, idle, 0)
		if err != nil {
			return pair{}, err
		}
		post := b.floors.poster("/append", claimBody())
		row := func(ctx context.Context, r *round) error { return claims(ctx, s, r, idle, together, b.ops(times)) }
		floor := func(ctx context.Context, r *round) error {
			return repeat(b.ops(times)*together, func() error { return r.time(func() error { return post(ctx) }) })
		}
		return pair{row: row, floor: floor}, warm(ctx, row, floor)
	}
}

func claimBody() []byte {
	body, _ := json.Marshal(map[string]any{"operationName": "ClaimRunner", "query": client.ClaimRunner_Operation, "variables": map[string]any{"input": claimInput()}})
	return body
}
